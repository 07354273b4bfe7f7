#!/usr/bin/env python3
"""What a long load of matrix products does to rate, clock and power of a GPU: each against time since its begin.

Reads the folder of `kvcalib sustained`. Writes sustained.pdf and .png, and prints for each load the rate and the clock of its first
milliseconds and of its end, and for each product the time alone, the time repeated and, with --table, the published one.
"""

import argparse
from pathlib import Path
from statistics import median

import style

LOAD = ["name", "m", "data", "before"]
START_MS, SETTLED = 5.0, 0.5  # what counts as the begin, and as the end (share of the load)
BIN_MS = 5.0  # slices hold different products: lines show means


def read_loads(folder):
    """{(load, m, data, before): ([slices of products], [clock samples])}, numbers as floats, None where a cell is empty."""
    def numbers(row, columns):
        return {name: float(row[name]) if row[name] else None for name in columns}

    names = {row["load"]: tuple(row[name] for name in LOAD)
             for row in style.read_csv(folder / "sustained_loads.csv", ["load", *LOAD])}
    loads = {}
    slice_columns = ["start_ms", "time_us", "tflops", "sm_mhz"]
    for row in style.read_csv(folder / "sustained.csv", ["load", *slice_columns]):
        slices, _ = loads.setdefault(names[row["load"]], ([], []))
        if row["tflops"]:  # else copies before the products
            slices.append(numbers(row, slice_columns))
    clock_columns = ["at_ms", "sm_mhz", "power_w"]
    for row in style.read_csv(folder / "sustained_clocks.csv", ["load", *clock_columns, "clock_limit"]):
        key = names[row["load"]]
        if key in loads:
            loads[key][1].append({**numbers(row, clock_columns), "clock_limit": row["clock_limit"]})
    if not loads:
        style.fail(f"{folder}/sustained.csv: no slices")
    return loads


def rate(slices):
    """TFLOP/s over all of the slices."""
    return sum(s["tflops"] * s["time_us"] for s in slices) / sum(s["time_us"] for s in slices)


def mean(values):
    values = [value for value in values if value is not None]
    return sum(values) / len(values) if values else float("nan")


def begin_and_end(slices):
    length = slices[-1]["start_ms"]
    return [s for s in slices if s["start_ms"] < START_MS], [s for s in slices if s["start_ms"] >= SETTLED * length]


def is_product(key):
    return "x" in key[0] and key[0].replace("x", "").isdigit()


def name_of(key):
    load, m, data, before = key
    return f"{load} m={m}" + (" zeros" if data == "zeros" else "") + (" after memory" if before == "memory" else "")


def print_loads(loads):
    print(f"{'load':34}  {'TFLOP/s':^20}  {'SM MHz':^13}  end: power, limited samples")
    print(f"{'':34}  {'begin':>6} {'end':>6} {'ratio':>6}  {'begin':>6} {'end':>6}")
    for key, (slices, clocks) in loads.items():
        begin, end = begin_and_end(slices)
        late = [c for c in clocks if end[0]["start_ms"] <= c["at_ms"] <= end[-1]["start_ms"]]
        limited = sum(c["clock_limit"] not in ("", "none") for c in late)
        print(f"{name_of(key):34}  {rate(begin):6.0f} {rate(end):6.0f} {rate(end) / rate(begin):6.3f}  "
              f"{mean(s['sm_mhz'] for s in begin):6.0f} {mean(s['sm_mhz'] for s in end):6.0f}  "
              f"{mean(c['power_w'] for c in late):6.0f} W  {limited}/{len(late)}")


def print_bursts(folder, loads, table):
    bursts = {}
    for row in style.read_csv(folder / "sustained_bursts.csv", ["m", "n", "k", "time_us", "sm_mhz"]):
        bursts.setdefault((row["m"], row["n"], row["k"]), []).append(float(row["time_us"]))
    published = {}
    if table:
        for row in style.read_csv(table, ["gemm_dtype", "m", "n", "k", "latency"]):  # latency in ms
            if row["gemm_dtype"] == "bfloat16":
                published[row["m"], row["n"], row["k"]] = 1e3 * float(row["latency"])
    print(f"{'product':22}  {'alone us':>9} {'begin us':>9} {'end us':>9}" + (f" {'table us':>9}" if table else ""))
    for (m, n, k), times in bursts.items():
        line = f"{m + ' x ' + n + ' x ' + k:22}  {median(times):9.1f}"
        key = (f"{n}x{k}", m, "normal", "idle")
        flops = 2.0 * int(m) * int(n) * int(k)
        for part in begin_and_end(loads[key][0]) if key in loads else ():
            line += f" {1e-6 * flops / rate(part):9.1f}"
        if (m, n, k) in published:
            line += f" {published[m, n, k]:9.1f}"
        print(line)


def binned(points):
    """Means of (ms, value) over BIN_MS."""
    bins = {}
    for at, value in points:
        if value is not None:
            bins.setdefault(int(at // BIN_MS), []).append(value)
    return [BIN_MS * (number + 0.5) for number in bins], [mean(values) for values in bins.values()]


def draw(loads):
    style.apply()
    plt = style.plt
    chains = {key: value for key, value in loads.items() if not is_product(key)}
    names = list(dict.fromkeys(key[0] for key in chains))
    figure, grid = plt.subplots(3, len(names), figsize=(2.4 * len(names), 4.6), sharex=True, sharey="row", squeeze=False,
                                layout="constrained")
    for column, name in enumerate(names):
        cases = [(key, value) for key, value in chains.items() if key[0] == name]
        if len(cases) > len(style.COLOURS):
            style.fail(f"expected at most {len(style.COLOURS)} loads of {name}, got {len(cases)}")
        rates, clocks, power = grid[:, column]
        for (key, (slices, samples)), colour in zip(cases, style.COLOURS):
            label = name_of(key).removeprefix(name).strip()
            rates.plot(*binned((s["start_ms"], s["tflops"]) for s in slices), color=colour, label=label)
            clocks.plot(*binned((s["start_ms"], s["sm_mhz"]) for s in slices), color=colour)
            power.plot(*binned((c["at_ms"], c["power_w"]) for c in samples), color=colour)
        rates.set_title(name)
        power.set_xlabel("Time since the first product (ms)")
        power.legend(*rates.get_legend_handles_labels(), loc="upper center", bbox_to_anchor=(0.5, -0.35))
    for axes, label in zip(grid[:, 0], ["TFLOP/s", "SM clock (MHz)", "Power (W)"]):
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="of kvcalib sustained")
    parser.add_argument("--table", help="CSV of published products (gemm_dtype, m, n, k, latency in ms)")
    parser.add_argument("--out", default="figures", help="folder for the figure")
    arguments = parser.parse_args()
    loads = read_loads(arguments.folder)
    print_loads(loads)
    print_bursts(arguments.folder, loads, arguments.table)
    print(style.save(draw(loads), arguments.out, "sustained"))


if __name__ == "__main__":
    main()
