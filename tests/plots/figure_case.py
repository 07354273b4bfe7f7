"""What the tests of figures share: a folder with a small profile, and the script as its users run it."""

import csv
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PLOTS = Path(__file__).resolve().parents[2] / "plots"
sys.path.insert(0, str(PLOTS))

PROFILE_COLUMNS = ["family", "k_heads", "v_heads", "k_dim", "v_dim", "state_dtype", "records", "batch", "buffer_length", "fill",
                   "flush_rows", "tokens", "bytes", "l2", "time_us", "dram_read_bytes", "dram_write_bytes"]
LAYER = {"family": "gdn", "k_heads": 16, "v_heads": 32, "k_dim": 128, "v_dim": 128, "tokens": 1, "l2": "cold"}


def write_csv(path, columns, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        writer.writerows(rows)


class FigureCase(unittest.TestCase):
    script_name = ""
    reads_profile = True

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        # The read probe reaches 4 bytes per us at its best, the copy probe 2.
        for probe, rates in (("stream_read", (1, 4)), ("stream_copy", (1, 2))):
            self.profile(probe, [{"bytes": 1000 * rate, "time_us": 1000, "l2": "cold"} for rate in rates])

    def profile(self, name, rows):
        write_csv(self.folder / f"{name}.csv", PROFILE_COLUMNS, rows)

    def run_script(self, code, *arguments):
        profile = [f"--profile={self.folder}"] if self.reads_profile else []
        result = subprocess.run([sys.executable, "-B", PLOTS / self.script_name, *profile,
                                 f"--out={self.folder / 'figures'}", *arguments],
                                capture_output=True, text=True, timeout=120)
        self.assertEqual(result.returncode, code, result.stderr)
        return result

    def assert_figure(self, name):
        self.assertTrue((self.folder / f"figures/{name}.pdf").read_bytes().startswith(b"%PDF"))
        self.assertTrue((self.folder / f"figures/{name}.png").read_bytes().startswith(b"\x89PNG"))
