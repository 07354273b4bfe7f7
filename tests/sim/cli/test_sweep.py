"""kvsim sweep: rows in order, the same bytes for any number of jobs, infeasible points, refusals."""

import json
import unittest

from support import EXPERIMENT, CliTest

SWEEP = """\
schema: kvsim/sweep/1
name: small_sweep
experiment: ./experiment.yaml
axes:
  - {key: linear.buffer_length, values: [1, 4, 16]}
  - {key: workload.batch, values: [1, 32]}
"""


class Sweep(CliTest):
    def setUp(self):
        super().setUp()
        self.write("sweep.yaml", SWEEP)

    def test_one_row_per_point_in_the_order_of_the_axes(self):
        result = self.kvsim("sweep", "sweep.yaml")
        self.assertEqual(result.stdout, "results/small_sweep/runs.csv\n")
        self.assertEqual(result.stderr, "")  # no progress bar: nobody watches
        rows = self.rows("results/small_sweep")
        self.assertEqual(list(rows[0])[:4], ["linear.buffer_length", "workload.batch", "status", "reason"])
        self.assertEqual([(row["linear.buffer_length"], row["workload.batch"]) for row in rows],
                         [("1", "1"), ("1", "32"), ("4", "1"), ("4", "32"), ("16", "1"), ("16", "32")])
        self.assertEqual({row["status"] for row in rows}, {"ok"})
        self.assertEqual({row["flushes"] for row in rows if row["linear.buffer_length"] == "1"}, {"0"})

    def test_bytes_do_not_depend_on_jobs_or_time(self):
        for jobs, out in ((1, "a"), (2, "b"), (5, "c"), (2, "d")):
            self.kvsim("sweep", "sweep.yaml", "--jobs", jobs, "--out", out)
        texts = {(self.folder / out / "runs.csv").read_bytes() for out in "abcd"}
        self.assertEqual(len(texts), 1)

    def test_a_point_equals_its_run(self):
        self.kvsim("sweep", "sweep.yaml", "--out", "sweep")
        self.kvsim("run", "experiment.yaml", "--set", "linear.buffer_length=4", "--set", "workload.batch=32",
                   "--out", "run")
        point = self.rows("sweep")[3]
        for key, value in self.rows("run")[0].items():
            self.assertEqual(point[key], value, key)

    def test_shown_fields_are_those_of_the_rows(self):
        self.refused("sweep", "sweep.yaml", "--out", "out", "--show", "ttft_ms.p98",
                     says=["--show: unknown field `ttft_ms.p98` (did you mean `ttft_ms.p9"])
        self.write("sweep.yaml", SWEEP.replace("[1, 32]", "[1, 1000000]").replace("[1, 4, 16]", "[16]"))
        lines = self.kvsim("sweep", "sweep.yaml", "--out", "out", "--show", "steps,itl_ms.p99,stability").stdout.splitlines()
        self.assertEqual(lines[0].split(), ["workload.batch", "steps", "itl_ms.p99", "stability"])  # a length for all
        row = self.rows("out")[0]
        self.assertEqual(lines[2].split(), ["1", row["steps"], f"{float(row['itl_ms_p99']):.5g}", row["stability"] or "-"])
        self.assertEqual(lines[3].split(), ["1000000"] + ["infeasible"] * 3)
        self.assertEqual(lines[4:], ["", "out/runs.csv"])

    def test_set_changes_every_point(self):
        self.kvsim("sweep", "sweep.yaml", "--set", "workload.steps=3", "--out", "out")
        self.assertEqual({row["steps"] for row in self.rows("out")}, {"3"})

    def test_manifest_and_resolved_file(self):
        self.kvsim("sweep", "sweep.yaml", "--out", "out")
        manifest = json.loads((self.folder / "out/manifest.json").read_text())
        names = [item["file"].rsplit("/", 1)[-1] for item in manifest["inputs"]]
        self.assertEqual(names, ["sweep.yaml", "experiment.yaml", "fit.yaml"])
        text = (self.folder / "out/resolved.yaml").read_text()
        self.assertIn("axes:\n  - {key: linear.buffer_length, values: [1, 4, 16]}\n", text)
        base = "".join(line[2:] for line in text.splitlines(keepends=True) if line.startswith("  ")
                       and not line.startswith("  - "))
        self.write("base.yaml", base)
        self.kvsim("run", "base.yaml")

    def test_the_manifest_has_the_linear_layer_that_all_runs_share(self):
        def layer(axis, *words):
            self.write("sweep.yaml", SWEEP.replace("{key: workload.batch, values: [1, 32]}", axis))
            self.kvsim("sweep", "sweep.yaml", "--out", "out", *words)
            return json.loads((self.folder / "out/manifest.json").read_text()).get("linear_layer")

        # config.json: Qwen3.5-9B has 24 linear layers of 16 key and 32 value heads, Qwen3.5-35B-A3B has 30 of them.
        swept = layer("{key: model, values: [qwen3.5-9b]}")
        self.assertEqual((swept["layers"], swept["k_heads"], swept["v_heads"]), (24, 16, 32))
        self.assertIsNone(layer("{key: model, values: [qwen3.5-9b, qwen3.5-35b-a3b]}"))
        rank = layer("{key: parallelism.tp, values: [4]}")
        self.assertEqual((rank["layers"], rank["k_heads"], rank["v_heads"]), (30, 4, 8))

    def test_a_point_that_does_not_fit_is_a_row(self):
        self.write("sweep.yaml", SWEEP.replace("[1, 32]", "[1, 32, 100000]"))
        result = self.kvsim("sweep", "sweep.yaml", "--out", "out")
        rows = self.rows("out")
        self.assertEqual([row["status"] for row in rows], ["ok", "ok", "infeasible"] * 3)
        self.assertIn("limited by", rows[2]["reason"])
        self.assertEqual(rows[2]["steps"], "")
        self.assertIn("workload.batch=100000 infeasible", result.stderr)

    def test_a_model_that_does_not_fit_is_a_row(self):
        self.write("sweep.yaml", SWEEP.replace("{key: workload.batch, values: [1, 32]}",
                                               "{key: device.memory, values: [40 GiB, 141 GiB]}"))
        self.kvsim("sweep", "sweep.yaml", "--out", "out")
        self.assertEqual([row["status"] for row in self.rows("out")], ["infeasible", "ok"] * 3)

    def test_refusals(self):
        self.refused("sweep", "absent.yaml", says=["absent.yaml"])
        self.refused("sweep", "sweep.yaml", "--set", "workload.batch=3", says=["--set workload.batch=3", "axis"])
        self.refused("sweep", "sweep.yaml", "--set", "workload.stps=3", says=["workload.stps", "steps"])
        self.refused("sweep", "sweep.yaml", "--jobs", "0", says=["--jobs"])
        self.write("sweep.yaml", SWEEP.replace("buffer_length", "bufer_length"))
        self.refused("sweep", "sweep.yaml", says=["sweep.yaml", "linear.bufer_length"])
        self.write("sweep.yaml", SWEEP.replace("[1, 32]", "[1, -32]"))
        self.refused("sweep", "sweep.yaml", says=["sweep.yaml:6:", "-32"])

    def test_an_axis_that_would_undo_another(self):
        axes = "  - {key: linear.buffer_length, values: [4, 8]}\n  - {key: linear, values: ['{form: recurrent}']}\n"
        self.write("sweep.yaml", SWEEP[:SWEEP.index("  - ")] + axes)
        self.refused("sweep", "sweep.yaml", says=["sweep.yaml:6:", "undo the axis `linear.buffer_length`"])
        self.write("sweep.yaml", SWEEP[:SWEEP.index("  - ")] + axes.splitlines()[1] + "\n")
        self.refused("sweep", "sweep.yaml", "--set", "linear.buffer_length=4", says=["--set", "axis `linear`"])

    def test_one_bad_point_does_not_stop_the_others(self):
        """At one request in thirty years the last of eight arrives beyond the range of time."""
        workload = "{kind: poisson, rate: 5 /s, requests: 8, prompt_tokens: {constant: 9}, output_tokens: {constant: 2}}"
        lines = EXPERIMENT.format(profile=self.profile).splitlines()
        self.write("experiment.yaml", "\n".join(f"workload: {workload}" if line.startswith("workload:") else line
                                                for line in lines))
        self.write("sweep.yaml", SWEEP.replace("{key: workload.batch, values: [1, 32]}",
                                               "{key: workload.rate, values: [5 /s, 0.000000001 /s]}"))
        self.kvsim("sweep", "sweep.yaml", "--out", "out", code=1)
        self.assertEqual({(row["workload.rate"], row["status"]) for row in self.rows("out")},
                         {("5 /s", "ok"), ("0.000000001 /s", "failed")})

    def test_a_broken_trace_is_bad_input_of_the_whole_sweep(self):
        self.write("trace.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n")
        self.write("sweep.yaml", SWEEP.replace("{key: workload.batch, values: [1, 32]}", "{key: seed, values: [1, 2]}"))
        self.write("experiment.yaml", EXPERIMENT.format(profile=self.profile))
        self.refused("sweep", "sweep.yaml", "--set", "workload.trace=trace.csv", says=["trace.csv"])


if __name__ == "__main__":
    unittest.main()
