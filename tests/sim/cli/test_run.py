"""kvsim run: results, refusals, and the folder of results."""

import json
import subprocess
import unittest

from support import (CONV_TRACE, KVSIM, LINEAR_LAYERS, ROOT, TRACE, CliTest, buffered_us, launch_us, recurrent_bytes,
                     skipped)

STATISTICS = {"count", "mean", "std", "p50", "p90", "p95", "p99", "max"}


class Results(CliTest):
    def test_json_has_the_documented_keys(self):
        result = self.json("run", "experiment.yaml")
        for name in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms", "queue_ms", "prompt_tokens", "output_tokens"):
            self.assertEqual(set(result[name]) - {"ci95"}, STATISTICS, name)
        self.assertEqual(set(result["requests"]), {"read", "completed", "rejected", "dropped", "unfinished"})
        for name in ("output_tokens_per_s", "steps", "simulated_s"):
            self.assertIsInstance(result[name], (int, float), name)

    def test_a_statistic_without_samples_is_null(self):
        result = self.json("run", "experiment.yaml")  # steady decode: nothing arrives, so there is no first token
        self.assertEqual(result["ttft_ms"]["count"], 0)
        self.assertIsNone(result["ttft_ms"]["mean"])
        self.assertIsNone(result["ttft_ms"]["p99"])

    def test_steady_recurrent_decode_costs_what_the_profile_says(self):
        result = self.json("run", "experiment.yaml", "--set", "linear.form=recurrent")
        expected = LINEAR_LAYERS * launch_us(recurrent_bytes(32)) / 32
        self.assertAlmostEqual(result["linear_us_per_token"] / expected, 1.0, delta=0.01)
        self.assertEqual(result["steps"], 32)
        self.assertEqual(result["flushes"], 0)

    def test_steady_buffered_decode_is_priced_in_mixed_phases(self):
        # 32 rows spread over 16 phases: two rows at every fill 0..15, two of them flush.
        result = self.json("run", "experiment.yaml")
        expected = LINEAR_LAYERS * buffered_us(32, 2 * sum(range(16)), 2, 16, 16) / 32
        self.assertAlmostEqual(result["linear_us_per_token"] / expected, 1.0, delta=0.02)
        self.assertEqual(result["flushes"], 32 * 32 // 16)

    def test_table_without_json(self):
        text = self.kvsim("run", "experiment.yaml").stdout
        self.assertIn("TPOT ms", text)
        self.assertIn("32 read", text)
        self.assertRegex(text, r"by source: fitted [\d.]+ %, roofline [\d.]+ %\n")

    def test_the_table_tells_the_average_step(self):
        arrivals = ["--set", "workload={kind: closed, concurrency: 3, requests: 9, prompt_tokens: {constant: 10}, "
                             "output_tokens: {constant: 10}}"]
        for words in ([], arrivals):
            result = self.json("run", "experiment.yaml", *words)
            self.assertIn(f"\na step: {result['step_us'] / 1e3:.3f} ms and {result['mean_batch']:.2f} requests on average\n",
                          self.kvsim("run", "experiment.yaml", *words).stdout)
        self.assertIn(" ms and 32.00 requests on average\n", self.kvsim("run", "experiment.yaml").stdout)  # the steady batch

    def test_trace_rows_are_all_accounted_for(self):
        self.write("trace.csv", TRACE)
        result = self.json("run", "experiment.yaml", "--set", "workload.trace=trace.csv")
        requests = result["requests"]
        self.assertEqual((requests["read"], requests["completed"]), (3, 3))
        self.assertEqual(result["one_token_outputs"], 1)
        self.assertEqual(result["tpot_ms"]["count"], 2)
        self.assertEqual(result["generated_tokens"], 44 + 1 + 20)

    def test_full_azure_conversation_trace(self):
        if not CONV_TRACE.exists():
            return skipped(f"no trace at {CONV_TRACE}")
        result = self.json("run", ROOT / "configs/experiments/azure_conv.yaml", "--set", f"workload.trace={CONV_TRACE}",
                           "--set", f"profile_dir={self.profile}")
        requests = result["requests"]
        # Splitwise (ISCA 2024), section III: 19,366 requests, medians of 1,020 input and 129 output tokens.
        self.assertEqual(requests["read"], 19366)
        self.assertEqual(sum(requests[name] for name in ("completed", "rejected", "dropped", "unfinished")), 19366)
        self.assertEqual(result["prompt_tokens"]["p50"], 1020)
        self.assertEqual(result["output_tokens"]["p50"], 129)
        self.assertGreater(result["simulated_s"], 3501)  # the last row arrives 3,501.7 s after the first


class Refusals(CliTest):
    def change(self, old, new):
        text = (self.folder / "experiment.yaml").read_text()
        self.assertIn(old, text)
        self.write("experiment.yaml", text.replace(old, new))

    def refused_run(self, *arguments, says):
        return self.refused("run", "experiment.yaml", "--out", "out", *arguments, says=says)

    def test_unknown_key_with_suggestion(self):
        self.change("buffer_length", "bufer_length")
        self.refused_run(says=["experiment.yaml:6:", "linear.bufer_length", "buffer_length`?"])

    def test_duplicate_key(self):
        self.change("device: h200", "device: h200\ndevice: h200")
        self.refused_run(says=["experiment.yaml:5:", "device"])

    def test_quantity_without_unit(self):
        self.change("profile_dir", "horizon: 5\nprofile_dir")
        self.refused_run(says=["experiment.yaml:8:", "horizon", "5"])

    def test_negative_rate(self):
        self.change("{kind: steady, batch: 32, context: 1024, steps: 32}",
                    "{kind: poisson, rate: -5 /s, requests: 10, prompt_tokens: {constant: 10}, output_tokens: {constant: 10}}")
        self.refused_run(says=["experiment.yaml:7:", "workload.rate", "-5"])

    def test_all_mistakes_at_once(self):
        self.change("device: h200", "device: h2000")
        self.change("steps: 32", "steps: none")
        self.refused_run(says=["device", "h2000", "workload.steps"])

    def test_missing_model(self):
        message = self.refused_run("--set", "model=qwen3.5-35b", says=["--set model=qwen3.5-35b", "qwen3.5-35b-a3b"])
        self.assertEqual(len(message.splitlines()), 1)

    def test_model_that_does_not_fit(self):
        message = self.refused_run("--set", "device.memory=40 GiB",
                                   says=["experiment.yaml: model: ", "does not fit", "40.0 GiB"])
        self.assertEqual(len(message.splitlines()), 1)

    def test_pool_that_does_not_fit_or_holds_no_request(self):
        arrivals = ["--set", "workload={kind: poisson, rate: 1 /s, requests: 40, prompt_tokens: {constant: 10}, "
                             "output_tokens: {constant: 10}}"]
        self.refused_run("--set", "engine.memory.pool=1000 GiB", says=["engine.memory.pool: a pool of 1000.0 GiB beside"])
        self.refused_run(*arrivals, "--set", "engine.memory.pool=1 B", says=["no request fits", "limited by state_slots"])

    def test_work_beyond_the_range_of_time(self):  # 40 requests of 1e6 s: 463 days
        self.refused_run("--set", "workload={kind: poisson, rate: 1 /s, requests: 40, prompt_tokens: {constant: 10}, "
                                  "output_tokens: {constant: 10}}", "--set", "service={kind: constant, mean: 1000000 s}",
                         says=["workload: expected a run within 106 days", "horizon"])

    def test_many_replicas_cost_what_they_do(self):  # not what all of them would in every step
        result = self.json("run", "experiment.yaml", "--set", "replicas=20000", "--set",
                           "workload={kind: poisson, rate: 100 /s, requests: 2000, prompt_tokens: {constant: 10}, "
                           "output_tokens: {constant: 100}}")
        self.assertEqual(result["requests"]["completed"], 2000)

    def test_requests_go_where_they_can(self):
        self.change("workload: {kind: steady, batch: 32, context: 1024, steps: 32}",
                    "workload: {kind: poisson, rate: 1 /s, requests: 4, prompt_tokens: {constant: 10}, "
                    "output_tokens: {constant: 10}}")
        self.kvsim("run", "experiment.yaml", "--requests", "new/folder/requests.csv")
        self.assertEqual(len((self.folder / "new/folder/requests.csv").read_text().splitlines()), 5)
        self.refused_run("--requests", "experiment.yaml/requests.csv", says=["--requests", "no folder"])

    def test_batch_that_misses_by_one_token(self):
        """The KV cache holds each request's context and the token of the step."""
        tokens = self.json("capacity", "experiment.yaml")["kv_tokens"]
        fits = ["run", "experiment.yaml", "--set", "workload.batch=8", "--set", f"workload.context={tokens // 8 - 1}"]
        self.assertEqual(self.json(*fits)["steps"], 32)
        self.refused(*fits[:-1], f"workload.context={tokens // 8}", says=["does not fit", "kv_tokens"])

    def test_batch_that_does_not_fit(self):
        self.refused_run("--set", "workload.batch=100000", says=["workload.batch", "limited by"])

    def test_missing_experiment(self):
        self.refused("run", "absent.yaml", says=["absent.yaml"])

    def test_missing_profile(self):
        self.refused_run("--set", "profile_dir=nowhere", says=["nowhere"])

    def test_a_form_that_was_not_measured_is_on_the_roofline_and_says_so(self):
        measured, other = (self.json("run", "experiment.yaml", "--set", f"linear.state_dtype={dtype}")
                           for dtype in ("fp32", "bf16"))
        self.assertGreater(measured["share_fitted"], 0.0)
        self.assertEqual((other["share_fitted"], other["share_roofline"]), (0.0, 1.0))

    def test_records_with_u_in_fp32(self):
        steady = str(ROOT / "configs/experiments/steady_decode.yaml")
        narrow, wide = (self.json("run", steady, "--set", f"linear.records={records}") for records in ("bf16", "fp32_u"))
        # 32 value heads of 128, 16 key heads of 128 in bf16, a gate of each value head in fp32.
        rest = 2 * 16 * 128 + 4 * 32
        self.assertEqual(wide["bytes"]["buffer_write"] * (2 * 32 * 128 + rest),
                         narrow["bytes"]["buffer_write"] * (4 * 32 * 128 + rest))
        self.assertGreater(wide["itl_ms"]["mean"], narrow["itl_ms"]["mean"])
        # Both were measured: a law tells them, if outside the range of its rows.
        self.assertAlmostEqual(wide["share_roofline"], narrow["share_roofline"], delta=0.05)

    def test_set_without_value(self):
        self.refused_run("--set", "seed", says=["--set", "path=value", "seed"])

    def test_empty_folder_name(self):
        self.refused("run", "experiment.yaml", "--out", "", says=["--out"])

    def test_errors_need_no_open_stderr(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            result = subprocess.run([KVSIM, "run", "absent.yaml"], cwd=self.folder, stderr=full, timeout=60)
        self.assertEqual(result.returncode, 2)

    def test_unknown_option_and_command(self):
        self.refused("run", "experiment.yaml", "--jsn", says=["--jsn"])
        self.refused("rum", says=["rum"])
        self.refused(says=["SUBCOMMAND", "capacity"])

    def test_broken_traces(self):
        header, *rows = TRACE.splitlines()
        cases = {
            "NaN": ([header, rows[0], rows[1].replace(",100,", ",nan,")], "trace.csv:3:"),
            "negative length": ([header, rows[0].replace("374", "-374")], "trace.csv:2:"),
            "missing column": (["TIMESTAMP,ContextTokens", "2023-11-16 18:15:46.6805900,374"], "GeneratedTokens"),
            "no rows": ([header], "trace.csv"),
            "empty": ([], "trace.csv"),
        }
        for name, (lines, says) in cases.items():
            with self.subTest(name):
                self.write("trace.csv", "".join(line + "\n" for line in lines))
                self.refused_run("--set", "workload.trace=trace.csv", says=[says])

    def test_missing_trace(self):
        self.refused_run("--set", "workload.trace=absent.csv", says=["absent.csv"])


class Folder(CliTest):
    def test_writes_only_when_asked(self):
        before = sorted(self.folder.iterdir())
        self.kvsim("run", "experiment.yaml")
        self.assertEqual(sorted(self.folder.iterdir()), before)

    def test_three_files(self):
        self.kvsim("run", "experiment.yaml", "--out", "deep/out")
        out = self.folder / "deep/out"
        self.assertEqual({p.name for p in out.iterdir()}, {"runs.csv", "manifest.json", "resolved.yaml"})
        rows = self.rows("deep/out")
        self.assertEqual(len(rows), 1)
        self.assertEqual((rows[0]["status"], rows[0]["reason"]), ("ok", ""))
        self.assertEqual(rows[0]["steps"], "32")
        self.assertEqual(rows[0]["ttft_ms_mean"], "")
        manifest = json.loads((out / "manifest.json").read_text())
        self.assertEqual(manifest["command"][1:], ["run", "experiment.yaml", "--out", "deep/out"])
        self.assertEqual([i["file"] for i in manifest["inputs"]],
                         ["experiment.yaml", str(self.profile / "fit.yaml")])
        self.assertEqual(manifest["linear_layer"], {"layers": 30, "family": "gdn", "k_heads": 16, "v_heads": 32,
                                                    "k_dim": 128, "v_dim": 128, "state_dtype": "fp32"})

    def test_resolved_experiment_gives_the_same_row(self):
        self.kvsim("run", "experiment.yaml", "--set", "workload.batch=7", "--out", "one")
        self.kvsim("run", "one/resolved.yaml", "--out", "two")
        self.assertEqual((self.folder / "one/runs.csv").read_bytes(), (self.folder / "two/runs.csv").read_bytes())
        self.assertEqual((self.folder / "one/resolved.yaml").read_bytes(),
                         (self.folder / "two/resolved.yaml").read_bytes())

    def test_replaces_its_own_results(self):
        self.kvsim("run", "experiment.yaml", "--out", "out")
        self.kvsim("run", "experiment.yaml", "--out", "out", "--set", "workload.steps=5")
        self.assertEqual(self.rows("out")[0]["steps"], "5")
        self.assertEqual({p.name for p in self.folder.iterdir()}, {"experiment.yaml", "out"})

    def test_bad_input_leaves_older_results_alone(self):
        self.kvsim("run", "experiment.yaml", "--out", "out")
        self.refused("run", "experiment.yaml", "--out", "out", "--set", "seed=-1", says=["seed"])
        self.assertEqual(self.rows("out")[0]["steps"], "32")

    def test_refuses_what_it_did_not_write(self):
        (self.folder / "mine").mkdir()
        self.write("mine/notes.txt", "notes")
        self.refused("run", "experiment.yaml", "--out", "mine", says=["--out", "mine"])
        self.refused("run", "experiment.yaml", "--out", ".", says=["--out"])
        self.refused("run", "experiment.yaml", "--out", "experiment.yaml", says=["--out"])
        self.refused("run", "experiment.yaml", "--out", self.profile, says=["--out"])


if __name__ == "__main__":
    unittest.main()
