"""Serving that was published, predicted by whole runs."""

import unittest

from support import ROOT, CliTest

EXPERIMENT = str(ROOT / "configs/experiments/azure_conv.yaml")


def lengths(prompt, output):
    return f"prompt_tokens: {prompt}, output_tokens: {output}"


class Qwen4B(CliTest):
    """SGLang's cookbook, Qwen3.5-4B bf16 on an H200: P50 of TPOT. Lengths are uniform up to 8192 and 1024
    (profiles/README.md)."""

    def serve(self, concurrency, requests, acceptance=None):
        words = ["--set", "model=qwen3.5-4b", "--set", "linear.form=recurrent", "--set",
                 f"workload={{kind: closed, concurrency: {concurrency}, requests: {requests}, "
                 + lengths("{quantiles: [1, 8192]}", "{quantiles: [1, 1024]}") + "}"]
        if acceptance is not None:
            words += ["--set", f"speculation={{policy: static, drafts: 3, acceptance: {{rate: {acceptance}}}}}"]
        return self.json("run", EXPERIMENT, *words)

    def test_one_acceptance_fitted_at_concurrency_1_predicts_16(self):
        # 3 drafts of the MTP module: 1.35 ms at concurrency 1, 3.55 ms at 16.
        low, high = 0.5, 1.0
        for _ in range(8):
            middle = (low + high) / 2
            if self.serve(1, 100, middle)["tpot_ms"]["p50"] > 1.35:
                low = middle
            else:
                high = middle
        self.assertTrue(0.85 < high < 0.95, high)
        self.assertAlmostEqual(self.serve(16, 160, high)["tpot_ms"]["p50"] / 3.55, 1.0, delta=0.10)

    def test_concurrency_100_is_predicted_but_for_the_prefill_that_users_see(self):
        # 26.17 ms. Half of it is other requests' prefill, which is priced as the forward pass alone: a first token
        # is published after 91 ms at concurrency 1, and priced at 58. The prediction is 21 % too low for it; with
        # prefill as long as published it comes out 3 % above.
        alone = self.serve(1, 100)["ttft_ms"]["p50"]
        self.assertTrue(0.6 < alone / 91 < 0.7, alone)
        result = self.serve(100, 1000)
        tpot = result["tpot_ms"]["mean"]
        self.assertTrue(0.75 < tpot / 26.17 < 0.85, tpot)
        breakdown = result["breakdown"]
        after_first_token = breakdown["decode_ms"] + breakdown["interference_ms"]
        interference = tpot * breakdown["interference_ms"] / after_first_token
        self.assertAlmostEqual((tpot + interference * (91 / alone - 1)) / 26.17, 1.0, delta=0.05)


class Qwen122B(CliTest):
    def test_speculation_at_batch_512_pays_with_a_buffer_alone(self):
        # Published on B300, tokens/s at batch 512: 10,398 without speculation, 9,395 with stored states, 19,707
        # buffered, T = 4. On how many GPUs is not: two are the fewest that hold 512 requests of bf16 weights. Of
        # 151 MB of states each, stored five times, they hold 168.
        spec = "speculation={policy: static, drafts: 3, acceptance: {rate: 0.82}}"  # SPEED-Bench, the 397B
        crowd = ["--set", "model=qwen3.5-122b-a10b", "--set", "device=b300", "--set", "parallelism={tp: 2}",
                 "--set", "engine.memory.max_running_with_drafts=4096", "--set",
                 "workload={kind: closed, concurrency: 512, requests: 1536, "
                 + lengths("{constant: 1024}", "{constant: 1024}") + "}"]
        plain, stored, buffered = (self.json("run", EXPERIMENT, *crowd, *words)["output_tokens_per_s"]
                                   for words in (["--set", "linear.form=recurrent"],
                                                 ["--set", "linear.form=recurrent", "--set", spec], ["--set", spec]))
        # Ratios of the published numbers: 0.90 and 1.90.
        self.assertTrue(0.75 < stored / plain < 1.0, stored / plain)
        self.assertTrue(1.6 < buffered / plain < 2.1, buffered / plain)
        for predicted, published in ((plain, 10398), (stored, 9395), (buffered, 19707)):
            self.assertTrue(0.9 < predicted / published < 1.3, (predicted, published))


if __name__ == "__main__":
    unittest.main()
