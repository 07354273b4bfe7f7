"""kvsim fit and validate on a profile whose law is known, and the small commands."""

import csv
import re
import shutil
import unittest

from support import ROOT, CliTest

HELD_OUT_BATCHES = 5  # 24, 48, 96, 192, 384
ROWS_PER_BATCH = {"linear_recurrent": 1, "linear_buffered": 3 * (16 + 3)}


class Fit(CliTest):
    def setUp(self):
        super().setUp()
        shutil.copytree(self.profile, self.folder / "profile")

    def test_exact_rows_are_fitted_and_predicted(self):
        result = self.json("validate", "profile")
        kernels = {kernel["kernel"]: kernel for kernel in result["kernels"]}
        for name, rows in ROWS_PER_BATCH.items():
            self.assertEqual(kernels[name]["held_out"]["rows"], HELD_OUT_BATCHES * rows)
            self.assertLess(kernels[name]["held_out"]["median"], 0.01)
            self.assertLess(kernels[name]["held_out"]["p90"], 0.03)
        self.assertIn("stream_copy", kernels)

    def test_a_second_fit_writes_the_same_bytes(self):
        before = (self.folder / "profile/fit.yaml").read_bytes()
        (self.folder / "profile/fit.yaml").unlink()
        text = self.kvsim("fit", "profile").stdout
        self.assertTrue(text.startswith("profile/fit.yaml\n"))
        self.assertEqual((self.folder / "profile/fit.yaml").read_bytes(), before)

    def test_held_out_rows_do_not_enter_the_fit(self):
        path = self.folder / "profile/linear_recurrent.csv"
        lines = path.read_text().splitlines()
        column = lines[0].split(",").index
        changed = []
        for line in lines[1:]:
            cells = line.split(",")
            if cells[column("batch")] in ("24", "48", "96", "192", "384"):
                cells[column("time_us")] = str(2 * float(cells[column("time_us")]))
            changed.append(",".join(cells))
        path.write_text("\n".join([lines[0], *changed]) + "\n")
        before = (self.folder / "profile/fit.yaml").read_text()
        self.kvsim("fit", "profile")
        errors = {k["kernel"]: k for k in self.json("validate", "profile")["kernels"]}["linear_recurrent"]
        self.assertAlmostEqual(errors["held_out"]["median"], 0.5, delta=0.01)  # predicted / measured - 1 = -1/2
        self.assertLess(errors["fitted"]["worst"], 0.02)
        laws = [re.findall(r"(?:latency_us|gb_per_s): \S+", text)
                for text in (before, (self.folder / "profile/fit.yaml").read_text())]
        self.assertEqual(*laws)

    def test_a_kernel_that_is_no_longer_fitted_is_named(self):
        self.assertEqual(self.kvsim("fit", "profile").stderr, "")
        (self.folder / "profile/linear_recurrent.csv").unlink()
        self.assertIn("linear_recurrent with a state in fp32 is no longer fitted", self.kvsim("fit", "profile").stderr)

    def test_published_profiles_need_their_tables(self):
        self.refused("validate", ROOT / "profiles/h100", says=["profiles/h100: ", "published.yaml", "--tables"])

    def test_table_without_json(self):
        text = self.kvsim("validate", "profile").stdout
        self.assertIn("gdn buffered fp32 128x128, records bf16", text)
        self.assertIn("length 64", text)
        self.assertIn("held out", text)

    def test_a_fit_that_cannot_be_read_is_replaced(self):
        fit = self.folder / "profile/fit.yaml"
        good = fit.read_text()
        fit.write_text(good.replace("latency_us", "latency"))
        result = self.kvsim("fit", "profile")
        self.assertIn("cannot be read", result.stderr)
        self.assertEqual(fit.read_text(), good)

    def test_loads_that_cannot_be_read_leave_the_fit_as_it_was(self):
        (self.folder / "profile/sustained").mkdir()
        fit = self.folder / "profile/fit.yaml"
        fit.write_text("schema: kvsim/fit/1\n")
        self.refused("fit", "profile", says=["sustained_loads.csv: no such file"])
        self.assertEqual(fit.read_text(), "schema: kvsim/fit/1\n")

    def test_rows_as_csv(self):
        self.kvsim("validate", "profile", "--rows", "rows.csv")
        with open(self.folder / "rows.csv", newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(len(rows), sum(1 for path in (self.folder / "profile").glob("*.csv")
                                        for line in path.read_text().splitlines()[1:] if line))
        row = next(r for r in rows if r["form"] == "recurrent" and r["batch"] == "24")
        self.assertEqual(row["file"], "profile/linear_recurrent.csv")
        self.assertEqual(row["held_out"], "true")
        # State read and written, q, k, v and gates in, o out; 7 FLOPs per element of the state.
        self.assertEqual(int(row["bytes"]), 24 * (2 * 2097152 + 16512 + 8192))
        self.assertEqual(int(row["flops"]), 24 * 7 * 524288)
        self.assertAlmostEqual(float(row["predicted_us"]) / float(row["measured_us"]), 1, delta=0.03)

    def test_refusals(self):
        self.refused("fit", "absent", says=["absent"])
        self.refused("validate", "absent", says=["absent"])
        self.refused("fit", "profile", "--out", "experiment.yaml/fit.yaml", says=["--out", "experiment.yaml is no folder"])
        path = self.folder / "profile/linear_recurrent.csv"
        text = path.read_text()
        rows = text.splitlines(keepends=True)
        path.write_text(text + rows[1])
        self.refused("fit", "profile", says=[f"linear_recurrent.csv:{len(rows) + 1}: the same launch as in", "csv:2"])
        path.write_text(text.replace(rows[1], rows[1].replace(",16,32,", ",16,3200000000,", 1)))
        self.refused("fit", "profile", says=["linear_recurrent.csv:2: v_heads: expected at most 1048576, got 3200000000"])
        path.write_text(text + '"')
        self.refused("fit", "profile", says=[f"linear_recurrent.csv:{len(rows) + 1}: quoted cells are not supported"])
        path.write_text(text)
        (self.folder / "profile/stream_copy.csv").unlink()
        self.refused("fit", "profile", says=["stream_copy"])
        path = self.folder / "profile/linear_recurrent.csv"
        path.write_text(path.read_text().replace("true", "false", 1))
        self.refused("fit", "profile", says=["linear_recurrent.csv:2", "verified"])


class SmallCommands(CliTest):
    def test_version(self):
        self.assertRegex(self.kvsim("--version").stdout, r"^kvsim \d+\.\d+\.\d+ \(\S+\)\n$")

    def test_help(self):
        text = self.kvsim("--help").stdout
        for command in ("run", "sweep", "explain", "capacity", "fit", "validate", "list"):
            self.assertIn(command, text)
            self.kvsim(command, "--help")

    def test_list_prints_every_registry(self):
        text = self.kvsim("list").stdout
        for name in ("qwen3.5-35b-a3b", "h200", "sglang", "azure_conv", "gdn", "recurrent", "buffered", "fp32",
                     "state_slots", "roofline", "ttft_ms.p99", "dram_read_bytes"):
            self.assertRegex(text, rf"(?m)^  {re.escape(name)}(  |$)")

    def test_list_names_the_axis_of_every_policy(self):
        for kind, axis in (("forms", "structural"), ("flush", "temporal"), ("speculation", "temporal"),
                           ("steps", "temporal"), ("orders", "temporal"), ("admission", "spatial"),
                           ("victims", "structural"), ("routers", "spatial")):
            lines = self.kvsim("list", kind).stdout.splitlines()[1:]
            self.assertGreater(len(lines), 1)
            for line in lines:
                self.assertEqual(line.split()[1], axis)

    def test_list_one_kind(self):
        text = self.kvsim("list", "models").stdout
        names = sorted(path.stem for path in (ROOT / "configs/models").glob("*.yaml"))
        self.assertEqual([line.strip() for line in text.splitlines()[1:]], names)
        self.refused("list", "modles", says=["modles", "models"])


if __name__ == "__main__":
    unittest.main()
