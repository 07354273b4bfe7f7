"""Runs that speculate: verification with stored states and buffered, against kvsim capacity and the closed form."""

import unittest

from support import ROOT, CliTest

EXPERIMENT = str(ROOT / "configs/experiments/azure_conv.yaml")
SPECULATION = ["--set", "speculation={policy: static, drafts: 3, acceptance: {rate: 0.8}}"]
# More requests at once than fit: a closed loop of short ones.
CROWD = ["--set", "workload={kind: closed, concurrency: 700, requests: 2000, prompt_tokens: {constant: 100}, "
                  "output_tokens: {constant: 400}}",
         "--set", "engine.memory.max_running_with_drafts=4096"]
FORMS = {"stored": ["--set", "linear.form=recurrent"], "buffered": []}


class Speculation(CliTest):
    def test_every_engine_verifies_in_both_forms(self):
        # Expected tokens per verification: (1 - a^4) / (1 - a); the last one of a request is cut.
        expected = (1 - 0.8**4) / (1 - 0.8)
        for engine in ("sglang", "vllm", "ideal"):
            for form, words in FORMS.items():
                with self.subTest(engine=engine, form=form):
                    result = self.json("run", EXPERIMENT, *SPECULATION, *words, "--set", f"engine={engine}",
                                       "--set", "workload.requests=300")
                    self.assertEqual(result["requests"]["completed"], 300)
                    self.assertAlmostEqual(result["acceptance_length"] / expected, 1.0, delta=0.02)
                    self.assertEqual(result["flushes"] > 0, form == "buffered")

    def test_as_many_run_as_capacity_says(self):
        fit = {}
        for form, words in FORMS.items():
            with self.subTest(form=form):
                capacity = self.json("capacity", EXPERIMENT, *SPECULATION, *words, *CROWD)
                fit[form] = capacity["requests"]
                batch = self.json("run", EXPERIMENT, *SPECULATION, *words, *CROWD)["mean_batch"]
                self.assertLessEqual(batch, fit[form])
                self.assertGreater(batch, 0.8 * fit[form])
        # States and windows of 61.41 MiB: five of them per request and one beside a ring of 5.68 MiB.
        self.assertAlmostEqual(fit["buffered"] / fit["stored"], 5 * 61.41 / (61.41 + 5.68), delta=0.05)

    def test_policies_that_choose_the_number_of_drafts(self):
        # One request at a time: the table's number for batch 1, of which rate 1 keeps all. Drafts that are never kept
        # are not made, at batches of few rows too.
        alone = ["--set", "workload={kind: closed, concurrency: 1, requests: 3, prompt_tokens: {constant: 100}, "
                          "output_tokens: {constant: 401}}"]
        for policy, words in (("{policy: table, table: [[1, 4], [8, 1]], acceptance: {rate: 1}}", alone),
                              ("{policy: goodput, drafts: 4, acceptance: {rate: 1}}", alone)):
            with self.subTest(policy=policy):
                result = self.json("run", EXPERIMENT, "--set", f"speculation={policy}", *words)
                self.assertAlmostEqual(result["acceptance_length"], 5.0, delta=0.05)
        useless = ["--set", "speculation={policy: goodput, drafts: 4, acceptance: {rate: 0}}"]
        self.assertEqual(self.json("run", EXPERIMENT, *useless, "--set", "workload.requests=200")["acceptance_length"], 1.0)

    def test_the_table_tells_tokens_per_step(self):
        words = ["--set", "workload.requests=50", "--set", "workload.declared=20"]
        always = ["--set", "speculation={policy: static, drafts: 1, acceptance: {rate: 0}}"]
        drafted = self.kvsim("run", EXPERIMENT, *words, *always).stdout
        self.assertIn(", buffered form, 1 draft\n", drafted)
        self.assertIn("\nspeculation: 1.00 tokens per step", drafted)
        chosen = ["--set", "speculation={policy: goodput, drafts: 4, acceptance: {rate: 0.5}}"]
        self.assertIn(", buffered form, up to 4 drafts (goodput)\n", self.kvsim("run", EXPERIMENT, *words, *chosen).stdout)
        self.assertNotIn("speculation", self.kvsim("run", EXPERIMENT, *words).stdout)

    def test_kernels_of_another_device_keep_to_the_peaks_of_this_one(self):
        # 864 GB/s and 362.05 TFLOP/s; the profile is that of an H200, scaled.
        steady = str(ROOT / "configs/experiments/steady_speculation.yaml")
        for records in ("bf16", "fp32_u"):
            for drafts in ("3", "5", "8"):
                for batch in ("32", "48"):
                    step = self.json("explain", steady, "--set", "device=l40s", "--set", "model=qwen3.5-4b", "--set",
                                     f"linear.records={records}", "--batch", batch, "--drafts", drafts)
                    row = next(o for o in step["operators"] if o["name"] == "linear.verify_buffered")
                    with self.subTest(records=records, drafts=drafts, batch=batch):
                        self.assertEqual(row["source"], "extrapolated")
                        states = 24 * int(batch) * 32 * 128 * 128 * 4
                        self.assertGreaterEqual(row["time_us"], states / 864e3)
                        self.assertGreaterEqual(row["time_us"], row["flops"] / 362.05e6)

    def test_what_cannot_speculate_is_refused(self):
        self.refused("run", EXPERIMENT, *SPECULATION, "--set", "linear.form=auto", says=["linear.form", "auto"])
        self.refused("run", EXPERIMENT, *SPECULATION, "--set", "linear.flush=staggered",
                     says=["linear.flush.policy", "fixed_length", "deferred"])

    def test_flush_policies_change_when_rows_with_drafts_flush_and_nothing_else(self):
        words = [*SPECULATION, "--set", "workload.requests=300", "--set", "linear.ring=32"]
        flushes = {}
        for policy in ("fixed_length", "aligned", "deferred", "deferred_under_load"):
            result = self.json("run", EXPERIMENT, *words, "--set", f"linear.flush={policy}")
            self.assertEqual(result["requests"]["completed"], 300)
            flushes[policy] = result["flushes"]
        # With the first that is due all flush, each with fewer records.
        self.assertGreater(flushes["aligned"], 1.2 * flushes["fixed_length"])
        self.assertLessEqual(flushes["deferred"], flushes["fixed_length"])


if __name__ == "__main__":
    unittest.main()
