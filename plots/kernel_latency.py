#!/usr/bin/env python3
"""How long one linear layer takes: time against batch by form and state format, the memory floor, and the speedups.

Reads a profile alone. Writes kernel_latency.pdf and .png, and prints the speedups. Rows of one layer are cold and
have bf16 records; m is the buffer length. Lines are
- recurrent:       one launch
- buffered, cycle: average over a flush cycle of m tokens (all rows share a fill, from 0 to the flush at m - 1)
- buffered, mixed: rows in mixed phases, one in m flushing, as servers run them
- verify, stored:  T draft tokens a row, the state after each written
- verify, ring:    T draft tokens a row, average over all fills, no flush
Dashed: the DRAM bytes of the same launches, as counted, at the rates of the stream probes.
Dotted: the append probe, which reads the states of buffered decode (fp32, two value heads per key head) and appends a
record; records that are read, and flushes, come on top.
"""

import argparse
from collections import defaultdict

import style
from measured import Roof, append_times, cycle_us, interpolate, linear_rows, mean_us

FORMATS = ["fp32", "bf16", "fp16", "split"]
COLOURS = {"recurrent": style.COLOURS[0], "cycle": style.COLOURS[3], "mixed": style.COLOURS[1],
           "stored": style.COLOURS[0], "ring": style.COLOURS[2]}
MARKERS = {"recurrent": "o", "cycle": "s", "mixed": "o", "stored": "o", "ring": "D"}
LABELS = {"recurrent": "recurrent", "cycle": "buffered, cycle", "mixed": "buffered, mixed",
          "stored": "verify, stored states", "ring": "verify, buffered"}
PANELS = {"decode": ["recurrent", "cycle", "mixed"], "verify": ["stored", "ring"]}
RATIOS = {"decode": ("recurrent", "cycle"), "verify": ("stored", "ring")}
FORMAT_STYLES = {"fp32": ("#000000", "o"), "bf16": (style.COLOURS[4], "s"), "fp16": (style.COLOURS[5], "v"),
                 "split": (style.COLOURS[2], "D")}
APPENDED = {"color": COLOURS["cycle"], "linestyle": ":", "linewidth": 1.0, "label": "read and appended"}


class Measured:
    """{(line, state format): {batch: (time, floor)}}, in us; a floor is None where counters are."""

    def __init__(self, profile, arguments):
        self.roof = Roof(profile)
        self.lines = defaultdict(dict)
        self.incomplete = {}  # keys of averages that lack fills, in order
        self.heads = (str(arguments.k_heads), str(arguments.v_heads))
        self.append_times = append_times(profile) if arguments.v_heads == 2 * arguments.k_heads else {}
        length, tokens = arguments.length, arguments.tokens
        for row in self._rows(profile, "recurrent"):
            self._add("recurrent", row["state_dtype"], row, self._pair(row))
        for row in self._rows(profile, "verify_stored"):
            if int(row["tokens"]) == tokens:
                self._add("stored", row["state_dtype"], row, self._pair(row))
        for row in self._rows(profile, "buffered"):
            batch = int(row["batch"])
            in_mixed_phases = row["fill"] == "" and int(row["flush_rows"]) == batch // length
            if int(row["buffer_length"]) == length and in_mixed_phases:
                self._add("mixed", row["state_dtype"], row, self._pair(row))
        self._average("cycle", self._rows(profile, "buffered"), length, 1,
                      lambda plain, flush: cycle_us(plain, flush, length))
        self._average("ring", self._rows(profile, "verify_buffered"), length, tokens,
                      lambda plain, _: mean_us(plain, range(length - tokens + 1)))

    def _rows(self, profile, form):
        return [row for row in linear_rows(profile, form)
                if (row["k_heads"], row["v_heads"]) == self.heads and row["records"] in ("", "bf16")]

    def _pair(self, row):
        return float(row["time_us"]), self.roof.floor_us(row)

    def _add(self, line, state, row, pair):
        self.lines[line, state][int(row["batch"])] = pair

    def _average(self, line, rows, length, tokens, average):
        """Times, and floors in the same way, of launches whose rows share a fill."""
        launches = defaultdict(lambda: ({}, {}))
        for row in rows:
            flushes, batch = int(row["flush_rows"]), int(row["batch"])
            if row["fill"] == "" or flushes not in (0, batch):
                continue
            if (int(row["buffer_length"]), int(row["tokens"])) == (length, tokens):
                launches[row["state_dtype"], batch][1 if flushes else 0][int(row["fill"])] = self._pair(row)
        for (state, batch), (plain, flush) in launches.items():
            pair = []
            for part in (0, 1):
                times = [{fill: p[part] for fill, p in group.items() if p[part] is not None} for group in (plain, flush)]
                pair.append(average(*times))
            if pair[0] is None:
                self.incomplete[line, state] = True
            else:
                self.lines[line, state][batch] = tuple(pair)

    def appended(self, panel, state):
        """[(batch, us)] of the append probe at the batches of buffered decode, as far as its sizes reach."""
        if (panel, state) != ("decode", "fp32"):
            return []
        times = [(batch, interpolate(self.append_times, batch * int(self.heads[1])))
                 for batch in sorted(self.lines.get(("cycle", state), {}))]
        return [(batch, time) for batch, time in times if time is not None]

    def formats(self, panel):
        return [state for state in FORMATS if any(self.lines.get((line, state)) for line in PANELS[panel])]

    def speedups(self, panel):
        """{state format: {batch: baseline / ours}}; against fp32 where the format has no baseline of its own."""
        result = {}
        baseline, ours = RATIOS[panel]
        for state in self.formats(panel):
            base = self.lines.get((baseline, state)) or self.lines.get((baseline, "fp32"), {})
            times = self.lines.get((ours, state), {})
            ratios = {batch: base[batch][0] / times[batch][0] for batch in sorted(base.keys() & times.keys())}
            if ratios:
                result[state] = ratios
        return result

    def gaps(self, panel):
        """(line, state format) of averages over fills of which too few were measured, though others of the panel were."""
        return [(line, state) for line, state in self.incomplete
                if line in PANELS[panel] and not self.lines.get((line, state))]

    def own_baseline(self, panel, state):
        return bool(self.lines.get((RATIOS[panel][0], state)))


def batch_axis(axes, batches):
    axes.set_xscale("log", base=2)
    ticks = [batch for batch in (1, 4, 16, 64, 256, 1024) if batches[0] <= batch <= batches[-1]]
    axes.set_xticks(ticks, [str(batch) for batch in ticks])
    axes.xaxis.set_minor_locator(style.ticker.NullLocator())


def looks(line):
    """Mixed launches lie close to the cycle: rings around its markers, without a line of their own."""
    own = {"linestyle": "none", "markerfacecolor": "none", "markersize": 5.5} if line == "mixed" else {"markersize": 3}
    return {"color": COLOURS[line], "marker": MARKERS[line], **own}


def draw_times(axes, measured, panel, state):
    for line in PANELS[panel]:
        points = sorted(measured.lines.get((line, state), {}).items())
        if not points:
            continue
        batches = [batch for batch, _ in points]
        axes.plot(batches, [time for _, (time, _) in points], **looks(line))
        floors = [(batch, floor) for batch, (_, floor) in points if floor is not None]
        if floors and line != "mixed":  # which has the bytes of the cycle
            axes.plot(*zip(*floors), color=COLOURS[line], linestyle=(0, (3, 2)), linewidth=0.8)
    appended = measured.appended(panel, state)
    if appended:
        axes.plot(*zip(*appended), **APPENDED)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(style.ticker.FormatStrFormatter("%g"))
    axes.yaxis.set_minor_locator(style.ticker.NullLocator())


def draw_speedups(axes, measured, panel):
    speedups = measured.speedups(panel)
    for state, ratios in speedups.items():
        colour, marker = FORMAT_STYLES[state]
        label = state if measured.own_baseline(panel, state) else f"{state} (vs fp32)"
        axes.plot(list(ratios), list(ratios.values()), color=colour, marker=marker, markersize=3, label=label)
    axes.axhline(1.0, color="#888888", linewidth=0.8)
    axes.set_ylim(0, (1.05 + 0.13 * len(speedups)) * axes.get_ylim()[1])  # room for the legend
    axes.legend(loc="upper left", handlelength=1.4, borderpad=0.1, labelspacing=0.3)


def draw(measured, panels, arguments):
    style.apply()
    plt = style.plt
    formats = [state for state in FORMATS if any(state in measured.formats(panel) for panel in panels)]
    columns = len(formats) + 1
    figure, grid = plt.subplots(len(panels), columns, squeeze=False, layout="constrained",
                                figsize=(max(style.COLUMN_INCHES, 1.78 * columns), 1.95 * len(panels)))
    for row, panel in zip(grid, panels):
        present = measured.formats(panel)
        batches = sorted({batch for (line, _), times in measured.lines.items() if line in PANELS[panel] for batch in times})
        for axes, state in zip(row, formats):
            if state not in present:
                axes.axis("off")
                continue
            draw_times(axes, measured, panel, state)
        shown = [axes for axes, state in zip(row, formats) if state in present]
        limits = [axes.get_ylim() for axes in shown]
        for axes, state in zip(row, formats):
            if state in present:
                axes.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
                axes.set_title(f"{state} state" + (f", T = {arguments.tokens}" if panel == "verify" else ""))
                batch_axis(axes, batches)
        for axes in shown[1:]:
            axes.tick_params(labelleft=False)
        shown[0].set_ylabel("Decode (\u00b5s)" if panel == "decode" else "Verify (\u00b5s)")
        draw_speedups(row[-1], measured, panel)
        batch_axis(row[-1], batches)
        over, under = (LABELS[line] for line in RATIOS[panel])
        row[-1].set_title("speedup")
        row[-1].set_ylabel(f"{over} / {under}".replace("verify, ", "").replace(", cycle", ""))
    for axes in grid[-1]:
        axes.set_xlabel("Batch")
    keys = [plt.Line2D([], [], label=LABELS[line], **looks(line))
            for panel in panels for line in PANELS[panel]
            if any(measured.lines.get((line, state)) for state in formats)]
    if any(floor is not None for times in measured.lines.values() for _, floor in times.values()):
        keys.append(plt.Line2D([], [], color="#555555", linestyle=(0, (3, 2)), linewidth=0.8, label="memory floor"))
    if any(measured.appended(panel, state) for panel in panels for state in formats):
        keys.append(plt.Line2D([], [], **APPENDED))
    figure.legend(handles=keys, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncol=min(len(keys), 2 * columns - 1))
    return figure


def print_table(measured, panels):
    print("form    state   batch  baseline us    ours us  speedup")
    for panel in panels:
        baseline, ours = RATIOS[panel]
        for state, ratios in measured.speedups(panel).items():
            base = state if measured.own_baseline(panel, state) else "fp32"
            for batch, ratio in ratios.items():
                print(f"{panel}  {state:6} {batch:6}  {measured.lines[baseline, base][batch][0]:11.2f}"
                      f"  {measured.lines[ours, state][batch][0]:9.2f}  {ratio:6.2f}x")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", default="profiles/h200", help="folder with the measured rows")
    parser.add_argument("--k-heads", type=int, default=16)
    parser.add_argument("--v-heads", type=int, default=32)
    parser.add_argument("--length", type=int, default=16, help="buffer length m")
    parser.add_argument("--tokens", type=int, default=5, help="draft tokens T of verification")
    parser.add_argument("--out", default="figures", help="folder for the figure")
    arguments = parser.parse_args()
    measured = Measured(arguments.profile, arguments)
    panels = [panel for panel in PANELS if measured.speedups(panel)]
    for panel in PANELS:
        if panel not in panels:
            print(f"left out: {panel}, of which {arguments.profile} has no rows")
        for line, state in measured.gaps(panel):
            print(f"left out: {LABELS[line]} with {state} state, of which some fills were not measured")
    if not panels:
        style.fail(f"{arguments.profile}: no cold rows of {arguments.k_heads}/{arguments.v_heads} heads")
    print_table(measured, panels)
    print(style.save(draw(measured, panels, arguments), arguments.out, "kernel_latency"))


if __name__ == "__main__":
    main()
