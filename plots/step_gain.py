#!/usr/bin/env python3
"""What a buffer buys of the whole decode step: recurrent over buffered against batch, a line per model, a panel per context.

Reads the runs of configs/sweeps/step_gain.yaml; batches that do not fit on the GPU are left out. Takes the best buffer
length at each batch. Writes step_gain.pdf and .png, prints the largest gain of every model, and where a gain reaches the
one that KVBuffer reports.
"""

import argparse

import style

AXES = ["model", "workload.context", "linear.buffer_length", "workload.batch"]
REPORTED = 1.47  # KVBuffer, arXiv 2605.19049 v2: batch decode, Qwen3.5 and Nemotron-3

TICKS = [1, 8, 32, 128, 512, 2048]


def read_gains(path):
    """{context: {model: {batch: (gain, best buffer length)}}}"""
    step_us = {}
    for row in style.read_csv(path, [*AXES, "status", "step_us"]):
        if row["status"] == "ok":
            model, context, length, batch = (row[axis] for axis in AXES)
            step_us.setdefault((int(context), model, int(batch)), {})[int(length)] = float(row["step_us"])
    gains = {}
    for (context, model, batch), times in step_us.items():
        buffered = {length: us for length, us in times.items() if length > 1}
        if 1 in times and buffered:
            best = min(buffered, key=buffered.get)
            gains.setdefault(context, {}).setdefault(model, {})[batch] = times[1] / buffered[best], best
    if not gains:
        style.fail(f"{path}: no batch ran with a buffer and without one")
    return dict(sorted(gains.items()))


def draw(gains):
    style.apply()
    plt = style.plt
    models = list(dict.fromkeys(model for by_model in gains.values() for model in by_model))
    if len(models) > len(style.COLOURS):
        style.fail(f"expected at most {len(style.COLOURS)} models, got {len(models)}")
    figure, panels = plt.subplots(1, len(gains), figsize=(style.COLUMN_INCHES * len(gains) / 1.2, 2.4), sharey=True,
                                  squeeze=False, layout="constrained")
    for axes, (context, by_model) in zip(panels[0], gains.items()):
        for model, colour, marker in zip(models, style.COLOURS, style.MARKERS):
            points = sorted(by_model.get(model, {}).items())
            axes.plot([batch for batch, _ in points], [gain for _, (gain, _) in points], color=colour, marker=marker)
        axes.axhline(REPORTED, color="black", linestyle="--", linewidth=0.8)
        batches = sorted({batch for by_batch in by_model.values() for batch in by_batch})
        ticks = [batch for batch in TICKS if batches[0] <= batch <= batches[-1]]
        axes.set_xscale("log", base=2)
        axes.set_xticks(ticks, [str(batch) for batch in ticks])
        axes.xaxis.set_minor_locator(style.ticker.NullLocator())
        axes.set_xlabel(f"Batch (context {context})")
    panels[0][0].set_ylabel("Recurrent / buffered step")
    keys = [plt.Line2D([], [], color=colour, marker=marker, label=model)
            for model, colour, marker in zip(models, style.COLOURS, style.MARKERS)]
    keys.append(plt.Line2D([], [], color="black", linestyle="--", linewidth=0.8, label=f"KVBuffer v2: {REPORTED}x"))
    figure.legend(handles=keys, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncol=4, columnspacing=1.2)
    return figure


def print_table(gains):
    print("model             context  largest gain  batch  length")
    reached = []
    for context, by_model in gains.items():
        for model, by_batch in by_model.items():
            batch, (gain, length) = max(by_batch.items(), key=lambda item: item[1])
            print(f"{model:16}  {context:7}  {gain:11.2f}x  {batch:5}  {length:6}")
            reached += [f"{model} at context {context}, batch {batch}: {gain:.2f}x"
                        for batch, (gain, _) in sorted(by_batch.items()) if gain >= REPORTED]
    print("\n".join([f"reach {REPORTED}x:", *reached]) if reached else f"no step that fits reaches {REPORTED}x")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", default="results/step_gain/runs.csv", help="of kvsim sweep")
    parser.add_argument("--out", default="figures", help="folder for the figure")
    arguments = parser.parse_args()
    gains = read_gains(arguments.runs)
    print_table(gains)
    print(style.save(draw(gains), arguments.out, "step_gain"))


if __name__ == "__main__":
    main()
