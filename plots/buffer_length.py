#!/usr/bin/env python3
"""Which buffer length to serve with: predicted lines and measured points against the buffer length, a line per batch.

Reads the runs of configs/sweeps/buffer_length.yaml and the profile that the predictions rest on. Writes
buffer_length.pdf and .png, and prints the best length of every batch.

Predictions price what a step of a server holds: rows in mixed phases of the flush cycle. Measured points are
- filled: launches in mixed phases, one row of every m flushing; m = 1 is the recurrent kernel;
- open: the average over a flush cycle of m tokens, from launches whose rows share a fill (number of records read),
      ((m - 1) x mean time at fills 0 .. m-2  +  time of the launch in which all rows flush, at fill m-1) / m
  with unmeasured fills interpolated between measured ones. A batch of one lives through just that.
"""

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path

import style
from measured import cycle_us

AXES = ["linear.buffer_length", "workload.batch"]
LINEAR_US = "linear_us_per_token"
STEP_US = "step_us"
BYTES = "state_buffer_bytes_per_token"


class Curve:
    """What the runs of one batch say, by buffer length."""

    def __init__(self, batch):
        self.batch = batch
        self.linear_us = {}  # per token, all linear layers
        self.step_us = {}
        self.megabytes = {}  # state and buffer traffic per token

    @property
    def lengths(self):
        return sorted(self.step_us)

    @property
    def best(self):
        return min(self.lengths, key=self.step_us.get)


def read_curves(path):
    curves = {}
    for row in style.read_csv(path, [*AXES, "status", LINEAR_US, STEP_US, BYTES]):
        if row["status"] != "ok":
            continue
        length, batch = (int(row[axis]) for axis in AXES)
        curve = curves.setdefault(batch, Curve(batch))
        if length in curve.step_us:
            style.fail(f"{path}: batch {batch} comes twice at buffer length {length}; the figure shows one model")
        curve.linear_us[length] = float(row[LINEAR_US])
        curve.step_us[length] = float(row[STEP_US])
        curve.megabytes[length] = float(row[BYTES]) / 1e6
    if not curves:
        style.fail(f"{path}: no run succeeded")
    for curve in curves.values():
        if 1 not in curve.step_us:
            style.fail(f"{path}: batch {curve.batch} has no run at buffer length 1, the recurrent baseline")
    return [curves[batch] for batch in sorted(curves)]


def read_linear_layer(runs):
    """The linear layer of the model, from the manifest beside the runs."""
    path = Path(runs).with_name("manifest.json")
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)["linear_layer"]
    except OSError as error:
        style.fail(f"{path}: {error.strerror}")
    except (KeyError, json.JSONDecodeError):
        style.fail(f"{path}: no linear_layer; was it written by kvsim sweep, with the same layer in all runs?")


def read_measured(profile, layer):
    """Two {(batch, buffer length): time of one layer in us} from the cold rows of the layer's shape: mixed, cycle."""
    columns = ["k_heads", "v_heads", "k_dim", "v_dim", "state_dtype", "family", "batch", "l2", "time_us"]
    keys = [name for name in columns[:6] if name in layer]

    def rows(name, more):
        return [row for row in style.read_csv(Path(profile) / name, columns + more)
                if row["l2"] == "cold" and all(row[key] == str(layer[key]) for key in keys)
                and row.get("records", "") in ("", "bf16")]  # what servers keep

    mixed = {(int(row["batch"]), 1): float(row["time_us"]) for row in rows("linear_recurrent.csv", [])}
    plain, flush = defaultdict(dict), defaultdict(dict)
    for row in rows("linear_buffered.csv", ["buffer_length", "fill", "flush_rows"]):
        batch, length = key = int(row["batch"]), int(row["buffer_length"])
        flush_rows = int(row["flush_rows"])
        if row["fill"] == "":
            if flush_rows == batch // length:
                mixed[key] = float(row["time_us"])
        elif flush_rows in (0, batch):
            (flush if flush_rows else plain)[key][int(row["fill"])] = float(row["time_us"])
    cycles = {key: cycle_us(plain[key], flush[key], key[1]) for key in plain}
    return mixed, {key: time for key, time in cycles.items() if time is not None}


def close(a, b):
    """Whether two curves lie on each other in print."""
    return all(abs(a[m] - b[m]) < 0.02 * b[m] for m in a.keys() & b.keys())


def draw(curves, mixed, cycles, layers):
    if len(curves) > len(style.COLOURS):
        style.fail(f"expected at most {len(style.COLOURS)} batches, got {len(curves)}")
    style.apply()
    plt = style.plt
    figure, panels = plt.subplots(3, 1, figsize=(style.COLUMN_INCHES, 6.2), sharex=True, layout="constrained")
    for curve, colour, marker in zip(curves, style.COLOURS, style.MARKERS):
        relative_step = {m: us / curve.step_us[1] for m, us in curve.step_us.items()}
        for panel, values in zip(panels, [curve.linear_us, relative_step, curve.megabytes]):
            panel.plot(curve.lengths, [values[m] for m in curve.lengths], color=colour)
            panel.plot(curve.best, values[curve.best], marker="*", markersize=8, color=colour,
                       markeredgecolor="black", markeredgewidth=0.5, linestyle="none", zorder=3)
        for measured, face in [(cycles, "none"), (mixed, colour)]:
            points = [(m, measured[curve.batch, m] * layers / curve.batch)
                      for m in curve.lengths if (curve.batch, m) in measured]
            if points:
                panels[0].plot(*zip(*points), marker=marker, color=colour, markerfacecolor=face, linestyle="none")

    panels[0].set_ylabel("Linear layers (\u00b5s per token)")
    panels[1].set_ylabel("Whole step (time / recurrent)")
    panels[2].set_ylabel("State + buffer (MB per token)")
    panels[0].set_yscale("log")  # the batches differ by more than the lengths do
    panels[0].yaxis.set_major_locator(style.ticker.LogLocator(subs=(1, 2, 3, 5)))
    panels[0].yaxis.set_major_formatter(style.ticker.FormatStrFormatter("%g"))
    panels[0].yaxis.set_minor_locator(style.ticker.NullLocator())
    panels[2].set_ylim(bottom=0)
    if all(close(curve.megabytes, curves[0].megabytes) for curve in curves):
        panels[2].text(0.5, 0.3, "the same for all batches", transform=panels[2].transAxes, ha="center", color="#555555")
    lengths = sorted({m for curve in curves for m in curve.lengths})
    panels[2].set_xscale("log", base=2)
    panels[2].set_xticks(lengths, [str(m) for m in lengths])
    panels[2].xaxis.set_minor_locator(style.ticker.NullLocator())
    panels[2].set_xlabel("Buffer length (tokens; 1 = recurrent)")

    keys = [plt.Line2D([], [], color=colour, marker=marker, markerfacecolor="none",
                       label=f"batch {curve.batch}: {curve.step_us[1] / 1e3:.1f} ms recurrent")
            for curve, colour, marker in zip(curves, style.COLOURS, style.MARKERS)]
    keys += [plt.Line2D([], [], color="black", label="predicted, phases mixed"),
             plt.Line2D([], [], color="black", marker="o", linestyle="none", label="measured, phases mixed"),
             plt.Line2D([], [], color="black", marker="o", markerfacecolor="none", linestyle="none",
                        label="measured, cycle average"),
             plt.Line2D([], [], color="white", marker="*", markersize=8, markeredgecolor="black", linestyle="none",
                        label="shortest step")]
    figure.legend(handles=keys, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncol=2)
    return figure


def print_table(curves):
    print("batch  best length  step us  recurrent us   gain  linear gain")
    for curve in curves:
        best = curve.best
        gain = curve.step_us[1] / curve.step_us[best]
        linear_gain = curve.linear_us[1] / curve.linear_us[best]
        print(f"{curve.batch:5}  {best:11}  {curve.step_us[best]:7.0f}  {curve.step_us[1]:12.0f}  {gain:4.2f}x"
              f"  {linear_gain:10.2f}x")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", default="results/buffer_length/runs.csv", help="of kvsim sweep")
    parser.add_argument("--profile", default="profiles/h200", help="folder with the measured rows")
    parser.add_argument("--out", default="figures", help="folder for the figure")
    arguments = parser.parse_args()
    curves = read_curves(arguments.runs)
    layer = read_linear_layer(arguments.runs)
    mixed, cycles = read_measured(arguments.profile, layer)
    if not mixed and not cycles:
        print(f"{arguments.profile}: no measured rows of this layer's {layer['k_heads']} key and {layer['v_heads']} value heads; "
              "the figure has lines alone", file=sys.stderr)
    figure = draw(curves, mixed, cycles, layer["layers"])
    print_table(curves)
    print(style.save(figure, arguments.out, "buffer_length"))


if __name__ == "__main__":
    main()
