#!/usr/bin/env python3
"""What speculation buys: tokens per second against batch for every number of drafts, states stored or buffered.

Reads the runs of configs/sweeps/speculation.yaml. Gains are over the recurrent form without drafts at the same batch;
batches that do not fit on the GPU are left out, so a line ends where memory does. Writes speculation.pdf and .png, and
prints the best number of drafts at each batch.
"""

import argparse

import style

AXES = ["linear.form", "speculation.drafts", "workload.batch"]
FORMS = {"recurrent": "Stored states", "buffered": "Buffered"}
TICKS = [1, 4, 16, 64, 256]


def read_gains(path):
    """{form: {drafts: {batch: gain}}} and {form: {drafts: {batch: tokens per second}}}"""
    rates = {form: {} for form in FORMS}
    for row in style.read_csv(path, [*AXES, "status", "output_tokens_per_s"]):
        form, drafts, batch = (row[axis] for axis in AXES)
        if row["status"] == "ok" and form in rates:
            rates[form].setdefault(int(drafts), {})[int(batch)] = float(row["output_tokens_per_s"])
    base = rates["recurrent"].get(0, {})
    gains = {form: {drafts: {batch: rate / base[batch] for batch, rate in sorted(by_batch.items()) if batch in base}
                    for drafts, by_batch in sorted(by_drafts.items())} for form, by_drafts in rates.items()}
    if not all(any(by_batch for drafts, by_batch in gains[form].items() if drafts > 0) for form in FORMS):
        style.fail(f"{path}: nothing ran with drafts in both forms, and without drafts in the recurrent one")
    return gains


def draw(gains):
    style.apply()
    plt = style.plt
    most = max(drafts for by_drafts in gains.values() for drafts in by_drafts)
    colour_of = plt.get_cmap("viridis_r", most + 2)  # dark for many; its palest is left out
    figure, panels = plt.subplots(1, len(FORMS), figsize=(1.6 * style.COLUMN_INCHES, 2.6), sharey=True, layout="constrained")
    for axes, (form, title) in zip(panels, FORMS.items()):
        for drafts, by_batch in gains[form].items():
            look = dict(color="black", linestyle="--") if drafts == 0 else dict(color=colour_of(drafts + 1))
            axes.plot(list(by_batch), list(by_batch.values()), marker=style.MARKERS[drafts % len(style.MARKERS)],
                      markersize=3, **look)
        batches = [batch for by_batch in gains[form].values() for batch in by_batch]
        axes.axhline(1, color="black", linewidth=0.6)
        axes.set_title(title)
        axes.set_xscale("log", base=2)
        axes.set_xticks([tick for tick in TICKS if min(batches) <= tick <= max(batches)])
        axes.xaxis.set_major_formatter(style.ticker.FormatStrFormatter("%d"))
        axes.xaxis.set_minor_locator(style.ticker.NullLocator())
        axes.set_xlabel("Batch")
    panels[0].set_ylabel("Tokens/s over recurrent, no drafts")
    panels[0].set_ylim(bottom=0)
    keys = [plt.Line2D([], [], marker=style.MARKERS[drafts % len(style.MARKERS)], markersize=3, label=str(drafts),
                       **(dict(color="black", linestyle="--") if drafts == 0 else dict(color=colour_of(drafts + 1))))
            for drafts in sorted({drafts for by_drafts in gains.values() for drafts in by_drafts})]
    figure.legend(handles=keys, title="Drafts", loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def print_table(gains):
    print("batch  stored: best drafts  gain  buffered: best drafts  gain")
    batches = sorted({batch for by_drafts in gains.values() for by_batch in by_drafts.values() for batch in by_batch})
    for batch in batches:
        line = f"{batch:5}"
        for form, width in (("recurrent", 21), ("buffered", 23)):
            by_drafts = {drafts: by_batch[batch] for drafts, by_batch in gains[form].items() if batch in by_batch}
            best = max(by_drafts, key=by_drafts.get, default=None)
            line += f"{'-':>{width}}     -" if best is None else f"{best:{width}}  {by_drafts[best]:4.2f}"
        print(line)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", default="results/speculation/runs.csv", help="of kvsim sweep")
    parser.add_argument("--out", default="figures", help="folder for the figure")
    arguments = parser.parse_args()
    gains = read_gains(arguments.runs)
    print_table(gains)
    print(style.save(draw(gains), arguments.out, "speculation"))


if __name__ == "__main__":
    main()
