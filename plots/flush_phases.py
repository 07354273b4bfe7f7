#!/usr/bin/env python3
"""The distribution of the time between tokens (ITL) with aligned and with staggered flushes: quantiles.

Reads the runs of configs/sweeps/flush_steady.yaml (one panel: a fixed batch) and flush_arrivals.yaml (the other: requests
that arrive). Writes flush_phases.pdf and .png, and prints by how much aligned flushes change the mean and the tail.
"""

import argparse

import style

ALIGNED, STAGGERED = "aligned", "staggered"
LOOKS = {ALIGNED: dict(linestyle="-", marker="o"), STAGGERED: dict(linestyle="--", marker="s", markerfacecolor="white")}
QUANTILES = ["p50", "p90", "p95", "p99", "max"]
TICKS = ["P50", "P90", "P95", "P99", "Max"]
COLUMNS = [f"itl_ms_{name}" for name in ["mean", *QUANTILES]]


def read_cases(path, axis, label):
    """{label of a case: {flush policy: {quantile: ms}}}, cases in the order of the file."""
    cases = {}
    for row in style.read_csv(path, [axis, "linear.flush", "status", *COLUMNS]):
        if row["status"] == "ok" and row["linear.flush"] in LOOKS:
            times = {name: float(row[f"itl_ms_{name}"]) for name in ["mean", *QUANTILES]}
            cases.setdefault(label(row[axis]), {})[row["linear.flush"]] = times
    cases = {name: policies for name, policies in cases.items() if len(policies) == len(LOOKS)}
    if not cases:
        style.fail(f"{path}: nothing ran with aligned and with staggered flushes")
    if len(cases) > len(style.COLOURS):
        style.fail(f"{path}: expected at most {len(style.COLOURS)} values of {axis}, got {len(cases)}")
    return cases


def draw(panels):
    style.apply()
    plt = style.plt
    figure, grid = plt.subplots(len(panels), 1, figsize=(style.COLUMN_INCHES, 2.1 * len(panels)), layout="constrained")
    places = range(len(QUANTILES))
    for axes, (title, cases) in zip(grid, panels.items()):
        for (name, policies), colour in zip(cases.items(), style.COLOURS):
            for policy, look in LOOKS.items():
                axes.plot(places, [policies[policy][quantile] for quantile in QUANTILES], color=colour, **look)
            axes.annotate(name, (places[-1], policies[ALIGNED]["max"]), xytext=(6, 0), textcoords="offset points",
                          va="center", color=colour, annotation_clip=False)
        axes.set_title(title)
        axes.set_xticks(places, TICKS)
        axes.set_ylabel("Time between tokens (ms)")
        largest = max(policies[ALIGNED]["max"] for policies in cases.values())
        if largest > 10 * min(policies[ALIGNED]["p50"] for policies in cases.values()):
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(style.ticker.LogLocator(subs=(1, 2, 5)))
            axes.yaxis.set_major_formatter(style.ticker.FormatStrFormatter("%g"))
            axes.yaxis.set_minor_locator(style.ticker.NullLocator())
        else:
            axes.set_ylim(bottom=0)
    keys = [plt.Line2D([], [], color="black", label=f"{policy} flushes", **look) for policy, look in LOOKS.items()]
    figure.legend(handles=keys, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncol=2)
    return figure


def print_table(panels):
    print("aligned / staggered       mean    p50    p90    p95    p99    max")
    for cases in panels.values():
        for name, policies in cases.items():
            ratios = [policies[ALIGNED][key] / policies[STAGGERED][key] for key in ["mean", *QUANTILES]]
            print(f"{name:22}" + "".join(f"  {ratio:5.3f}" for ratio in ratios))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steady", default="results/flush_steady/runs.csv", help="of kvsim sweep, by workload.batch")
    parser.add_argument("--arrivals", default="results/flush_arrivals/runs.csv", help="of kvsim sweep, by workload")
    parser.add_argument("--out", default="figures", help="folder for the figure")
    arguments = parser.parse_args()
    panels = {"Steady decode": read_cases(arguments.steady, "workload.batch", lambda batch: f"batch {batch}"),
              "Requests that arrive": read_cases(arguments.arrivals, "workload", lambda name: name.replace("_", " "))}
    print_table(panels)
    print(style.save(draw(panels), arguments.out, "flush_phases"))


if __name__ == "__main__":
    main()
