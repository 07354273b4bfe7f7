#!/usr/bin/env python3
"""How many requests fit against the number of drafts: states stored for verification, or a buffer.

Reads what `kvsim capacity --compare --json` prints, one file per number of SGLang's state slots per request (q). Writes
capacity.pdf and .png, and prints the requests with and without a buffer.

All numbers are those that memory holds, before an engine's limit of running requests. `no ring charged` is the count of
the recurrent form without drafts: verification that keeps nothing at all, the claim of the paper.
"""

import argparse
import json

import style

STORED, BUFFERED, FREE = "stored", "buffered", "free"
FORMS = {"recurrent": STORED, "verify_stored": STORED, "buffered": BUFFERED, "verify_buffered": BUFFERED}
LOOKS = {STORED: dict(linestyle="-", marker="o"), BUFFERED: dict(linestyle="--", marker="s", markerfacecolor="white"),
         FREE: dict(linestyle=":")}
LABELS = {STORED: "stored states", BUFFERED: "buffered, ring charged", FREE: "no ring charged"}


def read_rows(path):
    try:
        with open(path, encoding="utf-8") as file:
            rows = json.load(file)["alternatives"]
    except OSError as error:
        style.fail(f"{path}: {error.strerror}")
    except (KeyError, TypeError, json.JSONDecodeError):
        style.fail(f"{path}: no alternatives; was it written by kvsim capacity --compare --json?")
    if not rows:
        style.fail(f"{path}: no alternatives")
    return rows


class Engine:
    """Requests that memory holds under one engine's rule, by drafts."""

    def __init__(self, rows):
        first = rows[0]
        self.label = f"{first['engine']}, q = {first['slots_per_request']}" if first["pools"] == "split" else first["engine"]
        self.split = first["pools"] == "split"
        self.requests = {STORED: {}, BUFFERED: {}}
        for row in rows:
            self.requests[FORMS[row["form"]]][row["drafts"]] = row["memory_requests"]
        if 0 in self.requests[STORED]:
            self.requests[FREE] = dict.fromkeys(self.requests[STORED], self.requests[STORED][0])

    def gain(self, drafts):
        stored, buffered = self.requests[STORED][drafts], self.requests[BUFFERED][drafts]
        return buffered / stored if stored else float("inf")


def read_engines(paths):
    """SGLang's variants in the order of the files, then the others, which are the same in every file."""
    split, others, problems = [], {}, set()
    for path in paths:
        rows = read_rows(path)
        problems.add((rows[0]["model"], rows[0]["device"], rows[0]["tokens_per_request"]))
        for name in dict.fromkeys(row["engine"] for row in rows):
            engine = Engine([row for row in rows if row["engine"] == name])
            if engine.split:
                split.append(engine)
            else:
                others.setdefault(name, engine)
    if len(problems) > 1:
        style.fail(f"expected files of one model, device and length, got {sorted(problems)}")
    return split, list(others.values()), problems.pop()


def draw(split, others, problem):
    if max(len(split), len(others)) > len(style.COLOURS):
        style.fail(f"expected at most {len(style.COLOURS)} engines, got {max(len(split), len(others))}")
    style.apply()
    plt = style.plt
    panels = [engines for engines in (split, others) if engines]
    figure, grid = plt.subplots(len(panels), 1, figsize=(style.COLUMN_INCHES, 2.3 * len(panels)), sharex=True,
                                squeeze=False, layout="constrained")
    for axes, engines in zip(grid[:, 0], panels):
        for engine, colour in zip(engines, style.COLOURS):
            for form, requests in engine.requests.items():
                if form == FREE and not engine.split:
                    continue
                axes.plot(list(requests), list(requests.values()), color=colour, **LOOKS[form])
            drafts, requests = list(engine.requests[BUFFERED].items())[-1]
            axes.annotate(engine.label, (drafts, requests), xytext=(6, 0), textcoords="offset points", va="center",
                          color=colour, annotation_clip=False)
        axes.set_ylabel("Requests in memory")
        axes.set_yscale("log")  # a gain is a distance
        axes.yaxis.set_major_locator(style.ticker.LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(style.ticker.FormatStrFormatter("%g"))
        axes.yaxis.set_minor_locator(style.ticker.NullLocator())
    model, device, tokens = problem
    grid[0, 0].set_title(f"{model} on one {device.upper()}, {tokens} tokens per request")
    grid[-1, 0].set_xlabel("Drafts verified per step")
    grid[-1, 0].xaxis.set_major_locator(style.ticker.MaxNLocator(integer=True))
    keys = [plt.Line2D([], [], color="black", label=LABELS[form], **LOOKS[form]) for form in LOOKS]
    figure.legend(handles=keys, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncol=3)
    return figure


def print_table(engines):
    print("engine         drafts  stored  buffered    gain")
    for engine in engines:
        for drafts in engine.requests[STORED]:
            if drafts not in engine.requests[BUFFERED]:
                continue
            print(f"{engine.label:13}  {drafts:6}  {engine.requests[STORED][drafts]:6}"
                  f"  {engine.requests[BUFFERED][drafts]:8}  {engine.gain(drafts):5.2f}x")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", help="of kvsim capacity --compare --json")
    parser.add_argument("--out", default="figures", help="folder for the figure")
    arguments = parser.parse_args()
    split, others, problem = read_engines(arguments.files)
    print_table(split + others)
    print(style.save(draw(split, others, problem), arguments.out, "capacity"))


if __name__ == "__main__":
    main()
