"""Instructions per step and of a whole command, counted by callgrind, against bounds.

count_instructions.py ROWS_DRIVER SERVE_DRIVER KVSIM EXPERIMENT VALGRIND. The difference of two runs leaves out
what a process costs to start; a command of one request is little else.
"""

import re
import subprocess
import sys

ROWS = 512
STEPS = (50, 150)
# form, drafts, half context of the acceptance (0: does not decay), bound per sequence-step
SPECULATION = [("buffered", 0, 0, 30), ("buffered", 3, 0, 60), ("recurrent", 3, 0, 60),
               ("buffered", 5, 0, 60), ("recurrent", 7, 0, 60), ("buffered", 3, 8192, 70)]
REQUESTS = (300, 900)
# price of a step, bound per step; arrivals and everything else of the requests included
SERVING = [("constant", 1500), ("priced", 3300)]
# requests of the experiment, bound of the command that runs it
COMMAND = [(1, 70e6), (19366, 1050e6)]


def run(valgrind: str, words: list) -> tuple[int, str]:
    """Instructions of a run, and what it printed."""
    command = [valgrind, "--tool=callgrind", "--callgrind-out-file=/dev/null", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(re.search(r"Collected : (\d+)", done.stderr).group(1)), done.stdout


def check(what: str, count: float, bound: float) -> bool:
    print(f"{what}: {count:.1f} instructions, at most {bound:.0f}")
    return count <= bound


def speculation(valgrind: str, driver: str) -> bool:
    good = True
    for form, drafts, half, bound in SPECULATION:
        short, long = (run(valgrind, [driver, form, drafts, half, ROWS, steps])[0] for steps in STEPS)
        decay = f", acceptance halved per {half} tokens" if half else ""
        per_row = (long - short) / (ROWS * (STEPS[1] - STEPS[0]))
        good &= check(f"a sequence-step, {form}, {drafts} drafts{decay}", per_row, bound)
    return good


def serving(valgrind: str, driver: str) -> bool:
    good = True
    for price, bound in SERVING:
        short, long = (run(valgrind, [driver, price, requests]) for requests in REQUESTS)
        steps = int(long[1].split()[0]) - int(short[1].split()[0])
        good &= check(f"a step of the serving loop, {price} price", (long[0] - short[0]) / steps, bound)
    return good


def command(valgrind: str, kvsim: str, experiment: str) -> bool:
    good = True
    for requests, bound in COMMAND:
        count = run(valgrind, [kvsim, "run", experiment, "--set", f"workload.requests={requests}"])[0]
        good &= check(f"kvsim run, {requests} requests", count, bound)
    return good


def main() -> int:
    rows, serve, kvsim, experiment, valgrind = sys.argv[1:6]
    good = [speculation(valgrind, rows), serving(valgrind, serve), command(valgrind, kvsim, experiment)]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
