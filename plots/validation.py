#!/usr/bin/env python3
"""Predicted over measured for every family and source, with a band of 10 % either way.

Reads what `kvsim validate` and `kvsim validate-steps` write with --rows:
- published tables: one file per GPU; rows held out of the fit alone. Absent where the tables are: its panel says so
- our kernels:      a profile's rows; those held out in colour, those that were fitted in grey
- whole steps:      decode steps and serving points of others, with one standard deviation of the prediction
Writes validation.pdf and .png, and prints the errors. Points beyond the axis are drawn at its edge.
"""

import argparse
import math
import statistics
from collections import defaultdict
from pathlib import Path

import style

GPU_COLOURS = {"h200": style.COLOURS[0], "h100": style.COLOURS[1], "l40s": style.COLOURS[2]}
FAMILY_NAMES = {"gemm_bf16": "GEMM, bf16", "gemm_fp8": "GEMM, fp8", "moe_bf16": "MoE, bf16",
                "packed_decode": "SGLang's decode", "fused_chunk": "prefill, FlashInfer", "staged_chunk": "prefill, Triton",
                "conv_update": "convolution step", "conv_update_trtllm": "convolution, TRT-LLM",
                "conv_prefill": "convolution, prompt", "all_reduce": "all-reduce"}  # others by their own
FORM_NAMES = {"recurrent": "recurrent decode", "buffered": "buffered decode", "verify_stored": "verify, stored states",
              "verify_buffered": "verify, buffered"}
BAND = 0.1
EDGE = 1.6  # points are drawn up to this ratio, and down to one over it
LIMITS = 0.5, 2.6  # of the axis, with place for words below and above the points
COLUMNS = 5
FITTED_COLOUR = "#bbbbbb"


class Panel:
    """One family: groups of (measured, predicted, uncertainty or None) with a name and a colour."""

    def __init__(self, title, source, unit="us"):
        self.title, self.source, self.unit = title, source, unit
        self.groups = defaultdict(list)  # (name, colour, hollow): points
        self.missing = ""

    def add(self, name, colour, measured, predicted, uncertainty=None, hollow=False):
        self.groups[name, colour, hollow].append((float(measured), float(predicted), uncertainty))

    def errors(self):
        """{group: sorted errors}; what a fit saw is none."""
        result = defaultdict(list)
        for (name, colour, _), points in self.groups.items():
            if colour != FITTED_COLOUR:
                result[name] += [abs(predicted / measured - 1) for measured, predicted, _ in points]
        return {name: sorted(errors) for name, errors in result.items()}


def percentile(ordered, share):
    """Between the two nearest ranks, as kvsim prints it."""
    rank = share * (len(ordered) - 1)
    low = int(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (rank - low) * (ordered[high] - ordered[low])


# ---- what is read ----

def table_panels(files):
    """A panel per family of the published tables, all GPUs in it."""
    panels = {}
    for path in files:
        gpu = Path(path).stem.split("_")[0]
        if gpu not in GPU_COLOURS:
            style.fail(f"{path}: the name begins with none of {', '.join(GPU_COLOURS)}")
        for row in style.read_csv(path, ["family", "held_out", "measured_us", "predicted_us"]):
            if row["held_out"] == "true":
                panel = panels.setdefault(row["family"], Panel(FAMILY_NAMES.get(row["family"], row["family"].replace("_", " ")),
                                                              "published tables"))
                panel.add(gpu.upper(), GPU_COLOURS[gpu], row["measured_us"], row["predicted_us"])
    ranks = list(FAMILY_NAMES)
    return [panels[family] for family in sorted(panels, key=lambda f: ranks.index(f) if f in ranks else -1)]


def kernel_panels(path):
    """A panel per form of our kernels."""
    panels = {form: Panel(name, "our kernels") for form, name in FORM_NAMES.items()}
    for row in style.read_csv(path, ["form", "held_out", "measured_us", "predicted_us"]):
        if row["form"] in panels:
            held = row["held_out"] == "true"
            panels[row["form"]].add("held out" if held else "fitted", style.COLOURS[3] if held else FITTED_COLOUR,
                                    row["measured_us"], row["predicted_us"])
    return [panel for panel in panels.values() if panel.groups]


STEP_COLUMNS = ["device", "model", "metric", "variant", "batch", "measured", "predicted", "uncertainty", "power_limited"]


def step_panels(path):
    """Decode steps in us, serving points in ms, and gains by batch, of those that the file has."""
    steps = Panel("decode steps", "whole steps")
    serving = Panel("serving, 1 request", "whole steps", "ms")
    gains = Panel("buffer's gain", "whole steps", "batch")
    for row in style.read_csv(path, STEP_COLUMNS):
        point = row["measured"], row["predicted"], float(row["uncertainty"])
        slowed = row["power_limited"] == "true"
        if row["metric"] == "decode_us":
            recurrent = row["variant"].startswith("packed")
            steps.add("recurrent" if recurrent else "buffered", style.COLOURS[0 if recurrent else 3], *point, slowed)
        elif row["metric"] == "buffer_gain":
            gains.add(row["device"].upper(), GPU_COLOURS[row["device"]], *point)
            gains.batches = [*getattr(gains, "batches", []), int(row["batch"])]
        else:
            ttft = row["metric"] == "ttft_ms"
            serving.add("TTFT" if ttft else "TPOT", style.COLOURS[4 if ttft else 2], *point)
    return [panel for panel in (steps, serving, gains) if panel.groups]


def missing_panel(title, source, what):
    panel = Panel(title, source)
    panel.missing = what
    return panel


# ---- what is drawn ----

def clipped(ratio):
    return min(max(ratio, 1 / EDGE), EDGE)


def draw_panel(axes, panel):
    axes.set_title(panel.title, pad=3, fontweight="bold", fontsize=7.5)
    if panel.missing:
        axes.text(0.5, 0.5, panel.missing, transform=axes.transAxes, ha="center", va="center", color="#777777", fontsize=7)
        axes.set_xticks([])
        axes.set_yticks([])
        return
    axes.text(0.98, 0.015, panel.source, transform=axes.transAxes, ha="right", va="bottom", fontsize=5.5, color="#777777")
    axes.axhspan(1 - BAND, 1 + BAND, color="#e5e5e5", linewidth=0, zorder=0)
    axes.axhline(1, color="black", linewidth=0.6, zorder=1)
    total = sum(len(points) for points in panel.groups.values())
    crowded = total > 200
    for (_, colour, hollow), points in sorted(panel.groups.items(), key=lambda item: item[0][1] != FITTED_COLOUR):
        xs = panel.batches if panel.unit == "batch" else [measured for measured, _, _ in points]
        ratios = [predicted / measured for measured, predicted, _ in points]
        look = {"color": colour, "linestyle": "none", "zorder": 2, "markerfacecolor": "none" if hollow else colour,
                "marker": "." if crowded else "o", "markersize": 1.6 if crowded else 3.2,
                "markeredgewidth": 0.0 if crowded else 0.7}
        axes.plot(xs, [clipped(ratio) for ratio in ratios], rasterized=crowded, alpha=0.35 if crowded else 0.9, **look)
        if points[0][2] is not None:
            axes.errorbar(xs, ratios, [u / measured for measured, _, u in points], color=colour, linestyle="none",
                          linewidth=0.5, alpha=0.6, zorder=1.5)
    axes.set_xscale("log", base=2 if panel.unit == "batch" else 10)
    axes.xaxis.set_minor_locator(style.ticker.NullLocator())
    if panel.unit == "batch":
        axes.set_xticks(panel.batches, [str(batch) for batch in panel.batches])
    else:
        xs = [measured for points in panel.groups.values() for measured, _, _ in points]
        axes.set_xlim(10 ** math.floor(math.log10(min(xs))), 10 ** math.ceil(math.log10(max(xs))))
        axes.xaxis.set_major_locator(style.ticker.LogLocator(base=10))
    axes.set_yscale("log")
    axes.set_ylim(*LIMITS)
    axes.yaxis.set_major_locator(style.ticker.FixedLocator([0.7, 0.9, 1.1, 1.4]))
    axes.yaxis.set_major_formatter(style.ticker.FormatStrFormatter("%g"))
    axes.yaxis.set_minor_locator(style.ticker.NullLocator())
    axes.set_xlabel({"batch": "Batch", "us": "Measured (\u00b5s)", "ms": "Measured (ms)"}[panel.unit], labelpad=1)
    for line, (name, errors) in enumerate(panel.errors().items()):
        colour = next(colour for group, colour, _ in panel.groups if group == name and colour != FITTED_COLOUR)
        axes.text(0.98, 0.98 - 0.1 * line, f"{name}  {statistics.median(errors):.1%} / {percentile(errors, 0.9):.1%}",
                  transform=axes.transAxes, ha="right", va="top", fontsize=5.5, color=colour)


def draw(panels):
    style.apply()
    rows = -(-len(panels) // COLUMNS)
    figure, grid = style.plt.subplots(rows, COLUMNS, figsize=(7.4, 1.55 * rows + 0.3), squeeze=False, layout="constrained")
    cells = grid.flatten()
    for axes, panel in zip(cells, panels):
        draw_panel(axes, panel)
    for axes in cells[len(panels):]:
        axes.set_axis_off()
    for row in grid:
        row[0].set_ylabel("Predicted / measured")
    figure.supxlabel("Band: 10 % either way. Numbers: median / P90 error of rows that the fits never saw. "
                     "Grey: fitted rows. Hollow: at the power limit.", fontsize=7)
    return figure


def print_table(panels):
    print("source            family                 rows of    points  median     P90   worst")
    for panel in panels:
        if panel.missing:
            print(f"{panel.source:16}  {panel.title:21}  left out: {panel.missing.replace(chr(10), ' ')}")
        for name, errors in panel.errors().items():
            print(f"{panel.source:16}  {panel.title:21}  {name[:9]:9}  {len(errors):6}  {statistics.median(errors):6.1%}"
                  f"  {percentile(errors, 0.9):6.1%}  {errors[-1]:6.1%}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="results/validation",
                        help="folder with GPU_tables.csv of published tables, and whole_steps.csv; what is absent is left out")
    parser.add_argument("--kernels", default="results/h200_rows.csv", help="of kvsim validate PROFILE --rows")
    parser.add_argument("--steps", default="results/validation/published_steps.csv", help="of kvsim validate-steps --rows")
    parser.add_argument("--out", default="figures", help="folder for the figure")
    arguments = parser.parse_args()
    tables = sorted(Path(arguments.rows).glob("*_tables.csv"), key=lambda path: list(GPU_COLOURS).index(path.stem.split("_")[0])
                    if path.stem.split("_")[0] in GPU_COLOURS else 0)
    panels = table_panels(tables) or [missing_panel("operators", "published tables", "published tables\nare not here")]
    panels += kernel_panels(arguments.kernels)
    whole = Path(arguments.rows) / "whole_steps.csv"
    panels += step_panels(whole) if whole.exists() else [missing_panel("decode steps", "whole steps",
                                                                       "measured steps\nare not here")]
    panels += step_panels(arguments.steps)
    print_table(panels)
    print(style.save(draw(panels), arguments.out, "validation"))


if __name__ == "__main__":
    main()
