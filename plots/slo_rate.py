#!/usr/bin/env python3
"""The arrival rate at which objectives break: goodput against rate, and whether the queue grows without bound.

Reads the runs of configs/sweeps/slo_rate.yaml. Writes slo_rate.pdf and .png, and prints for every form the largest rate
up to which the share of requests that meet all objectives is kept (--attainment), and the first unstable one.
"""

import argparse
from typing import NamedTuple

import style

COLUMNS = ["linear.form", "workload.rate", "status", "goodput_per_s", "slo_attainment", "stability", "ttft_ms_p99", "tpot_ms_p99"]
VERDICTS = {"stable": dict(), "too_short": dict(markerfacecolor="white"), "unstable": dict(marker="x")}


class Run(NamedTuple):
    rate: float  # requests per second
    goodput: float
    attainment: float
    stability: str
    ttft_ms: float  # 99th percentiles
    tpot_ms: float


def number(row, column):
    return float(row[column]) if row[column] else float("nan")


def read_runs(path):
    """{form: runs by rate}"""
    runs = {}
    for row in style.read_csv(path, COLUMNS):
        if row["status"] != "ok":
            continue
        if not row["slo_attainment"]:
            style.fail(f"{path}: no slo_attainment; does the experiment have objectives (slo)?")
        rate, unit = (row["workload.rate"].split() + [""])[:2]
        if unit != "/s":
            style.fail(f"{path}: expected rates per second, got {row['workload.rate']}")
        runs.setdefault(row["linear.form"], []).append(
            Run(float(rate), number(row, "goodput_per_s"), number(row, "slo_attainment"), row["stability"],
                number(row, "ttft_ms_p99"), number(row, "tpot_ms_p99")))
    if not runs:
        style.fail(f"{path}: no run has ended well")
    return {form: sorted(of_form) for form, of_form in runs.items()}


def largest_rate(runs, attainment):
    """The last of the rates up to which all keep it; None if the first does not."""
    kept = None
    for run in runs:
        if run.attainment < attainment:
            break
        kept = run.rate
    return kept


def draw(runs):
    style.apply()
    plt = style.plt
    figure, axes = plt.subplots(figsize=(style.COLUMN_INCHES, 2.4), layout="constrained")
    top = 1.4 * max(run.goodput for of_form in runs.values() for run in of_form)
    axes.axline((0, 0), slope=1, color="black", linestyle=":", linewidth=0.8)
    axes.annotate("all arrivals", (top, top), xytext=(6, -4), textcoords="offset points", va="top")
    keys = []
    for (form, of_form), colour, marker in zip(runs.items(), style.COLOURS, style.MARKERS):
        axes.plot([run.rate for run in of_form], [run.goodput for run in of_form], color=colour)
        for run in of_form:
            axes.plot(run.rate, run.goodput, color=colour, **{"marker": marker, **VERDICTS[run.stability]})
        keys.append(plt.Line2D([], [], color=colour, marker=marker, label=form))
    for verdict, label in (("too_short", "too short to tell"), ("unstable", "queue grows")):
        if any(run.stability == verdict for of_form in runs.values() for run in of_form):
            look = {"marker": "s", **VERDICTS[verdict]}
            keys.append(plt.Line2D([], [], color="black", linestyle="none", label=label, **look))
    rates = [run.rate for of_form in runs.values() for run in of_form]
    axes.set_xlim(0.95 * min(rates), 1.02 * max(rates))
    axes.set_ylim(0, top)
    axes.set_xlabel("Requests that arrive per second")
    axes.set_ylabel("Goodput (requests/s)")
    axes.legend(handles=keys, loc="upper right", bbox_to_anchor=(1.0, 0.8))
    return figure


def print_table(runs, attainment):
    print("form        rate  goodput   met %  TTFT p99 ms  TPOT p99 ms  queue")
    for form, of_form in runs.items():
        for run in of_form:
            print(f"{form:9}  {run.rate:5g}  {run.goodput:7.2f}  {100 * run.attainment:6.2f}  {run.ttft_ms:11.1f}"
                  f"  {run.tpot_ms:11.1f}  {run.stability}")
    for form, of_form in runs.items():
        kept = largest_rate(of_form, attainment)
        unstable = next((run.rate for run in of_form if run.stability == "unstable"), None)
        print(f"{form}: {100 * attainment:g} % of the requests meet the objectives "
              + (f"up to {kept:g} /s" if kept is not None else f"at no rate from {of_form[0].rate:g} /s on")
              + (f"; unstable from {unstable:g} /s" if unstable is not None else ""))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", default="results/slo_rate/runs.csv", help="of kvsim sweep")
    parser.add_argument("--attainment", type=float, default=0.99, help="share of requests that must meet all objectives")
    parser.add_argument("--out", default="figures", help="folder for the figure")
    arguments = parser.parse_args()
    runs = read_runs(arguments.runs)
    print_table(runs, arguments.attainment)
    print(style.save(draw(runs), arguments.out, "slo_rate"))


if __name__ == "__main__":
    main()
