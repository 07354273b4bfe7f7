"""plots/buffer_length.py: the cycle average of measured launches, the table, the files, and missing input."""

import csv
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PLOTS = Path(__file__).resolve().parents[2] / "plots"
sys.path.insert(0, str(PLOTS))
import buffer_length  # noqa: E402

LAYER = {"layers": 30, "family": "gdn", "k_heads": 16, "v_heads": 32, "k_dim": 128, "v_dim": 128, "state_dtype": "fp32"}


class Cycle(unittest.TestCase):
    def test_interpolates_between_measured_fills(self):
        # Fills 0, 1, 2 take 10, 12 (interpolated), 14 us and the flush at fill 3 takes 20: (10 + 12 + 14 + 20) / 4.
        self.assertEqual(buffer_length.cycle_us({0: 10.0, 2: 14.0}, {3: 20.0}, 4), 14.0)

    def test_the_fill_of_the_flush_is_not_a_plain_step(self):
        self.assertEqual(buffer_length.cycle_us({0: 10.0, 1: 1000.0}, {1: 20.0}, 2), 15.0)

    def test_nothing_is_extrapolated(self):
        self.assertIsNone(buffer_length.cycle_us({1: 10.0, 2: 14.0}, {3: 20.0}, 4))
        self.assertIsNone(buffer_length.cycle_us({0: 10.0, 2: 14.0}, {}, 4))


def write_csv(path, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


class Script(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        # Step times 2000, 1000, 1250 us at lengths 1, 4, 16; linear layers 40, 10, 20 us per token.
        self.runs = [{"linear.buffer_length": m, "workload.batch": batch, "status": "ok", "linear_us_per_token": linear,
                      "step_us": step, "state_buffer_bytes_per_token": 1e8 / m}
                     for batch in (1, 64) for m, linear, step in ((1, 40, 2000), (4, 10, 1000), (16, 20, 1250))]
        write_csv(self.folder / "runs.csv", self.runs)
        (self.folder / "manifest.json").write_text(json.dumps({"linear_layer": LAYER}))
        row = {key: value for key, value in LAYER.items() if key != "layers"}
        row.update(batch=64, l2="cold", time_us=85)
        other = {**row, "v_heads": 48, "time_us": 1}
        warm = {**row, "l2": "warm", "time_us": 2}
        write_csv(self.folder / "linear_recurrent.csv", [row, other, warm])
        write_csv(self.folder / "linear_buffered.csv",
                  [{**row, "buffer_length": 4, "fill": fill, "flush_rows": flush, "time_us": time}
                   for fill, flush, time in ((0, 0, 10), (2, 0, 14), (3, 64, 20), ("", 16, 99))])

    def script(self, code, **changes):
        options = {"runs": self.folder / "runs.csv", "profile": self.folder, "out": self.folder / "figures", **changes}
        arguments = [f"--{name}={value}" for name, value in options.items()]
        result = subprocess.run([sys.executable, "-B", PLOTS / "buffer_length.py", *arguments], capture_output=True,
                                text=True, timeout=120)
        self.assertEqual(result.returncode, code, result.stderr)
        return result

    def test_table_and_files(self):
        lines = self.script(0).stdout.splitlines()
        self.assertEqual([line.split() for line in lines[1:3]], [["1", "4", "1000", "2000", "2.00x", "4.00x"],
                                                                 ["64", "4", "1000", "2000", "2.00x", "4.00x"]])
        self.assertEqual(lines[3], str(self.folder / "figures/buffer_length.pdf"))
        self.assertTrue((self.folder / "figures/buffer_length.pdf").read_bytes().startswith(b"%PDF"))
        self.assertTrue((self.folder / "figures/buffer_length.png").read_bytes().startswith(b"\x89PNG"))

    def test_measured_points_are_cold_rows_of_the_layer(self):
        self.assertEqual(buffer_length.read_measured(self.folder, LAYER),
                         ({(64, 1): 85.0, (64, 4): 99.0}, {(64, 4): 14.0}))

    def test_heads_that_were_not_measured_are_said_to_be_missing(self):
        self.assertEqual(self.script(0).stderr, "")
        (self.folder / "manifest.json").write_text(json.dumps({"linear_layer": {**LAYER, "layers": 18, "v_heads": 16}}))
        self.assertIn("no measured rows of this layer's 16 key and 16 value heads", self.script(0).stderr)

    def test_several_models_are_refused(self):
        write_csv(self.folder / "runs.csv", [{"model": model, **run} for model in ("a", "b") for run in self.runs])
        self.assertIn("comes twice", self.script(2).stderr)

    def test_infeasible_points_are_left_out(self):
        empty = {"status": "infeasible", "linear_us_per_token": "", "step_us": "", "state_buffer_bytes_per_token": ""}
        write_csv(self.folder / "runs.csv", [*self.runs, {**self.runs[0], "linear.buffer_length": 32, **empty}])
        self.assertEqual(len(self.script(0).stdout.splitlines()), 4)

    def test_missing_input_is_one_message(self):
        cases = [({"runs": self.folder / "absent.csv"}, "absent.csv"), ({"profile": self.folder / "absent"}, "absent")]
        for changes, says in cases:
            with self.subTest(says):
                message = self.script(2, **changes).stderr
                self.assertIn(says, message)
                self.assertEqual(len(message.splitlines()), 1)
                self.assertFalse((self.folder / "figures").exists())

    def test_no_baseline(self):
        write_csv(self.folder / "runs.csv", self.runs[1:3])
        self.assertIn("recurrent baseline", self.script(2).stderr)

    def test_missing_column_or_manifest(self):
        (self.folder / "manifest.json").write_text("{}")
        self.assertIn("linear_layer", self.script(2).stderr)
        write_csv(self.folder / "runs.csv", [{"status": "ok"}])
        self.assertIn("no column linear.buffer_length", self.script(2).stderr)


if __name__ == "__main__":
    unittest.main()
