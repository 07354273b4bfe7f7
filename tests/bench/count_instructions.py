"""Instructions per sequence-step of rows that speculate, counted by callgrind, against bounds.

count_instructions.py DRIVER VALGRIND. The difference of two runs leaves out what a process costs to start.
"""

import re
import subprocess
import sys

ROWS = 512
SHORT, LONG = 50, 150  # steps
# form, drafts, half context of the acceptance (0: does not decay), bound
CASES = [("buffered", 0, 0, 30), ("buffered", 3, 0, 60), ("recurrent", 3, 0, 60), ("buffered", 5, 0, 60),
         ("recurrent", 7, 0, 60), ("buffered", 3, 8192, 70)]


def instructions(driver: str, valgrind: str, case: list, steps: int) -> int:
    words = [str(word) for word in (*case, ROWS, steps)]
    command = [valgrind, "--tool=callgrind", "--callgrind-out-file=/dev/null", driver, *words]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(re.search(r"Collected : (\d+)", run.stderr).group(1))


def main() -> int:
    driver, valgrind = sys.argv[1:3]
    beyond = 0
    for *case, bound in CASES:
        short, long = (instructions(driver, valgrind, case, steps) for steps in (SHORT, LONG))
        per_row = (long - short) / (ROWS * (LONG - SHORT))
        form, drafts, half = case
        decay = f", acceptance halved per {half} tokens" if half else ""
        print(f"{form}, {drafts} drafts{decay}: {per_row:.1f} instructions per sequence-step, at most {bound}")
        beyond += per_row > bound
    return 1 if beyond else 0


if __name__ == "__main__":
    sys.exit(main())
