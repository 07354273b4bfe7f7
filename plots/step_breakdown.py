#!/usr/bin/env python3
"""Where the time of a decode step goes: stacked by family of operators against batch, recurrent beside buffered.

Reads what `kvsim explain --json` says of a step, one file each: a folder with every model, batch and form to draw.
Writes step_breakdown.pdf and .png, and prints the gain of the buffer and the share of each family.

Bars are relative to the recurrent step of the same batch, its time in ms above, and above that the gain. Segments are operators on the critical path, so
they sum to the step; what runs beside them is not drawn. Whiskers: one standard deviation of the step. A cross marks a
step whose requests do not fit on the GPU.
"""

import argparse
import json
from pathlib import Path

import style

# Colours follow the families, from the bottom up; the operator in question first, where its bars can be compared.
FAMILIES = {
    "linear attention": style.COLOURS[3],
    "convolution": style.COLOURS[1],
    "full attention": style.COLOURS[2],
    "GEMM": style.COLOURS[0],
    "MoE": style.COLOURS[5],
    "norms, gates": style.COLOURS[4],
    "sampling": "#8C510A",
    "communication": "#000000",
    "launch gaps": "#BBBBBB",
    "host": "#777777",
}
FAMILY_OF = {"linear": "linear attention", "conv": "convolution", "attention": "full attention", "gemm": "GEMM",
             "moe": "MoE", "element_wise": "norms, gates", "all_reduce": "communication", "host": "host"}
SAMPLING = {"argmax", "sample", "softmax", "logits_to_fp32"}
FORMS = {"recurrent": "", "buffered": "//////"}


class Step:
    def __init__(self, path):
        try:
            with open(path, encoding="utf-8") as file:
                said = json.load(file)
            self.model, self.device, self.form = said["model"], said["device"], said["form"]
            self.batch, self.length, self.context = said["batch"], said["buffer_length"], said["context"]
            self.us, self.uncertainty_us, self.fits = said["step_us"], said["step_uncertainty_us"], said["fits"]
            self.families = dict.fromkeys(FAMILIES, 0.0)
            for operator in said["operators"]:
                if operator["critical"]:
                    self.add(operator)
        except OSError as error:
            style.fail(f"{path}: {error.strerror}")
        except (KeyError, json.JSONDecodeError) as error:
            style.fail(f"{path}: not of kvsim explain --json: {error}")

    def add(self, operator):
        family = "sampling" if operator["name"] in SAMPLING else FAMILY_OF[operator["family"]]
        self.families[family] += operator["time_us"] - operator["gap_us"]
        self.families["launch gaps"] += operator["gap_us"]


def read_steps(folder):
    """{model: {batch: {form: step}}}, models by the time of their smallest batch."""
    steps = {}
    paths = sorted(Path(folder).glob("*.json"))
    if not paths:
        style.fail(f"{folder}: no JSON of kvsim explain")
    for step in map(Step, paths):
        if step.form in FORMS:
            steps.setdefault(step.model, {}).setdefault(step.batch, {})[step.form] = step
    for model, batches in steps.items():
        for batch, forms in batches.items():
            if len(forms) < len(FORMS):
                style.fail(f"{folder}: {model} at batch {batch} lacks {' and '.join(FORMS.keys() - forms.keys())}")
    if not steps:
        style.fail(f"{folder}: no step of {' or '.join(FORMS)} form")
    return {model: dict(sorted(steps[model].items()))
            for model in sorted(steps, key=lambda m: min(steps[m].items())[1]["recurrent"].us)}


def draw_model(axes, batches):
    width = 0.38
    for place, forms in enumerate(batches.values()):
        whole = forms["recurrent"].us
        for side, (form, hatch) in zip((-0.5, 0.5), FORMS.items()):
            step, bottom, x = forms[form], 0.0, place + side * (width + 0.04)
            for family, colour in FAMILIES.items():
                share = step.families[family] / whole
                axes.bar(x, share, width, bottom, color=colour, hatch=hatch, edgecolor="white", linewidth=0.3)
                bottom += share
            axes.errorbar(x, bottom, step.uncertainty_us / whole, color="black", linewidth=0.7, capsize=1.5)
            if not step.fits:
                axes.plot(x, 0.03, marker="x", markersize=3.5, color="black", linestyle="none")
        axes.text(place, 1.09, f"{whole / 1e3:#.3g}", ha="center", va="bottom", fontsize=6)
        axes.text(place, 1.16, f"{whole / forms['buffered'].us:.2f}x", ha="center", va="bottom", fontsize=6,
                  fontweight="bold")
    axes.set_xticks(range(len(batches)), [str(batch) for batch in batches])
    axes.tick_params(axis="x", length=0)
    axes.grid(axis="x", visible=False)


def draw(steps):
    style.apply()
    plt = style.plt
    plt.rcParams["hatch.linewidth"] = 0.3
    figure, panels = plt.subplots(1, len(steps), figsize=(7.1, 3.0), sharey=True, squeeze=False, layout="constrained")
    for axes, (model, batches) in zip(panels[0], steps.items()):
        draw_model(axes, batches)
        one = next(iter(batches.values()))["recurrent"]
        axes.set_title(f"{model}, {one.device.upper()}")
        axes.set_xlabel(f"Batch (context {one.context})")
    panels[0][0].set_ylabel("Time / recurrent step")
    panels[0][0].set_ylim(0.0, 1.24)
    for height, text, weight in ((1.09, "ms", "normal"), (1.16, "gain", "bold")):
        panels[0][0].annotate(text, (0, height), (-4, 0), xycoords=("axes fraction", "data"), textcoords="offset points",
                              ha="right", va="bottom", fontsize=6, fontweight=weight)
    panels[0][0].set_yticks([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    all_steps = [step for batches in steps.values() for forms in batches.values() for step in forms.values()]
    length = max(step.length for step in all_steps if step.form == "buffered")
    keys = [plt.Rectangle((0, 0), 1, 1, color=colour, label=family) for family, colour in FAMILIES.items()
            if any(step.families[family] > 0 for step in all_steps)]
    keys += [plt.Rectangle((0, 0), 1, 1, facecolor="#999999", edgecolor="white" if hatch else "#999999", hatch=hatch,
                           label=form if form == "recurrent" else f"{form}, {length} tokens")
             for form, hatch in FORMS.items()]
    if not all(step.fits for step in all_steps):
        keys.append(plt.Line2D([], [], color="black", marker="x", linestyle="none", label="does not fit"))
    figure.legend(handles=keys, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncol=6, columnspacing=1.2,
                  handletextpad=0.5, handlelength=1.4)
    return figure


def print_table(steps):
    print("model             batch  form       step us     +- us   gain  largest shares")
    for model, batches in steps.items():
        for batch, forms in batches.items():
            for form in FORMS:
                step = forms[form]
                largest = sorted(step.families.items(), key=lambda item: -item[1])[:4]
                shares = ", ".join(f"{family} {us / step.us:.0%}" for family, us in largest if us > 0)
                print(f"{model:16}  {batch:5}  {form:9}  {step.us:8.0f}  {step.uncertainty_us:8.0f}"
                      f"  {forms['recurrent'].us / step.us:4.2f}x  {shares}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", default="results/steps", help="folder with what kvsim explain --json printed")
    parser.add_argument("--out", default="figures", help="folder for the figure")
    arguments = parser.parse_args()
    steps = read_steps(arguments.steps)
    print_table(steps)
    print(style.save(draw(steps), arguments.out, "step_breakdown"))


if __name__ == "__main__":
    main()
