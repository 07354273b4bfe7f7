#!/usr/bin/env python3
"""Where the linear kernels stand under the memory roof that the stream probes measured.

Reads a profile, and the rows that `kvsim validate PROFILE --rows FILE` makes of it (times as measured, with the bytes
and FLOPs of each launch). Writes roofline.pdf and .png, and prints the share of the roof that each form reaches.
- left: bytes per us against the bytes of a launch, under the curves of the probes at every size
- right: FLOP/s against FLOPs per byte, under the best rate of the read probe (every launch of at least 64 MB)
"""

import argparse
import statistics
from collections import defaultdict

import style
from measured import Roof

FORMS = {"recurrent": style.COLOURS[0], "buffered": style.COLOURS[3], "verify_stored": style.COLOURS[5],
         "verify_buffered": style.COLOURS[2]}
FORMATS = {"fp32": "o", "bf16": "s", "fp16": "v", "split": "D"}
LARGE_BYTES = 64e6  # a launch whose time is that of its bytes


class Launch:
    def __init__(self, row):
        self.form, self.state = row["form"], row["state_dtype"]
        self.bytes = int(row["bytes"])
        self.flops = int(row["flops"])
        self.us = float(row["measured_us"])

    @property
    def bytes_per_us(self):
        return self.bytes / self.us


def read_launches(path, k_heads, v_heads, length):
    columns = ["form", "state_dtype", "k_heads", "v_heads", "buffer_length", "bytes", "flops", "measured_us"]
    return [Launch(row) for row in style.read_csv(path, columns)
            if row["form"] in FORMS and (row["k_heads"], row["v_heads"]) == (str(k_heads), str(v_heads))
            and row["buffer_length"] in ("", str(length))]


def by_kind(launches):
    """{(form, state format): launches}, in the order of the legend."""
    kinds = defaultdict(list)
    for launch in launches:
        kinds[launch.form, launch.state].append(launch)
    return {(form, state): kinds[form, state] for form in FORMS for state in FORMATS if (form, state) in kinds}


def scatter(axes, launches, x, y):
    for (form, state), points in reversed(by_kind(launches).items()):  # the few rows of the baselines on top
        axes.plot([x(p) for p in points], [y(p) for p in points], linestyle="none", marker=FORMATS[state], markersize=2.6,
                  markerfacecolor="none", markeredgewidth=0.6, color=FORMS[form], alpha=0.7)


def draw_rates(axes, launches, roof):
    for rates, look, name in ((roof.read, "-", "read probe"), (roof.copy, "--", "copy probe")):
        axes.plot([size / 1e6 for size in rates], [rate / 1e6 for rate in rates.values()], look, color="black", linewidth=1.0,
                  label=name)
    scatter(axes, launches, lambda p: p.bytes / 1e6, lambda p: p.bytes_per_us / 1e6)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(style.ticker.FormatStrFormatter("%g"))
    axes.set_xlim(left=1.0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("Bytes of the launch (MB)")
    axes.set_ylabel("Achieved (TB/s)")
    axes.legend(loc="lower right")


def draw_intensity(axes, launches, roof):
    large = [p for p in launches if p.bytes >= LARGE_BYTES]
    scatter(axes, large, lambda p: p.flops / p.bytes, lambda p: p.flops / p.us / 1e6)
    low = min(p.flops / p.bytes for p in large) / 1.3
    high = max(p.flops / p.bytes for p in large) * 1.3
    best = max(roof.read.values())
    axes.plot([low, high], [low * best / 1e6, high * best / 1e6], color="black", linewidth=1.0)
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(style.ticker.LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(style.ticker.FormatStrFormatter("%g"))
        axis.set_minor_locator(style.ticker.NullLocator())
    axes.set_xlabel("Arithmetic intensity (FLOP/byte)")
    axes.set_ylabel("Achieved (TFLOP/s)")


def draw(launches, roof):
    style.apply()
    plt = style.plt
    figure, (rates, intensity) = plt.subplots(1, 2, figsize=(7.1, 2.8), layout="constrained")
    draw_rates(rates, launches, roof)
    draw_intensity(intensity, launches, roof)
    kinds = by_kind(launches)
    keys = [plt.Line2D([], [], color=colour, marker="o", linestyle="none", label=form.replace("_", ", "))
            for form, colour in FORMS.items() if any(form == f for f, _ in kinds)]
    keys += [plt.Line2D([], [], color="#555555", marker=marker, markerfacecolor="none", linestyle="none",
                        label=f"{state} state")
             for state, marker in FORMATS.items() if any(state == s for _, s in kinds)]
    figure.legend(handles=keys, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncol=len(keys), columnspacing=1.2,
                  handletextpad=0.2)
    return figure


def print_table(launches, roof):
    best = max(roof.read.values())
    print(f"read probe at its best: {best / 1e6:.2f} TB/s; launches of at least {LARGE_BYTES / 1e6:.0f} MB")
    print("form             state  launches  median of roof  best of roof")
    for (form, state), points in by_kind([p for p in launches if p.bytes >= LARGE_BYTES]).items():
        shares = [p.bytes_per_us / best for p in points]
        print(f"{form:15}  {state:5}  {len(shares):8}  {statistics.median(shares):14.1%}  {max(shares):12.1%}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", default="profiles/h200", help="folder with the rows of the stream probes")
    parser.add_argument("--rows", default="results/h200_rows.csv", help="of kvsim validate --rows")
    parser.add_argument("--k-heads", type=int, default=16)
    parser.add_argument("--v-heads", type=int, default=32)
    parser.add_argument("--length", type=int, default=16, help="buffer length of forms with a ring")
    parser.add_argument("--out", default="figures", help="folder for the figure")
    arguments = parser.parse_args()
    launches = read_launches(arguments.rows, arguments.k_heads, arguments.v_heads, arguments.length)
    for form in FORMS:
        if not any(launch.form == form for launch in launches):
            print(f"left out: {form}, of which {arguments.rows} has no rows")
    if not any(launch.bytes >= LARGE_BYTES for launch in launches):
        style.fail(f"{arguments.rows}: no launches of at least {LARGE_BYTES / 1e6:.0f} MB with {arguments.k_heads}/"
                   f"{arguments.v_heads} heads")
    roof = Roof(arguments.profile)
    print_table(launches, roof)
    print(style.save(draw(launches, roof), arguments.out, "roofline"))


if __name__ == "__main__":
    main()
