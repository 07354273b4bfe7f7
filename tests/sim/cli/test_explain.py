"""kvsim explain: operators that sum to the step."""

import unittest

from support import LINEAR_LAYERS, CliTest, buffered_bytes, buffered_us

OPERATOR_KEYS = {"name", "family", "count", "launches", "bytes", "flops", "time_us", "gap_us", "uncertainty", "critical",
                 "bound", "source"}
LAUNCH_GAP_US = 0.5  # configs/engines/sglang.yaml


class Explain(CliTest):
    def test_operators_sum_to_the_step(self):
        result = self.json("explain", "experiment.yaml")
        self.assertEqual({frozenset(op) for op in result["operators"]}, {frozenset(OPERATOR_KEYS)})
        critical = [op["time_us"] for op in result["operators"] if op["critical"]]
        self.assertAlmostEqual(sum(critical), result["step_us"], places=5)
        self.assertLess(len(critical), len(result["operators"]))  # SGLang runs some on a second stream
        self.assertAlmostEqual(sum(result["step_us_by_source"].values()), result["step_us"], places=5)
        self.assertTrue(0 < result["step_uncertainty_us"] < result["step_us"])
        self.assertEqual((result["batch"], result["context"]), (32, 1024))  # those of the steady workload
        self.assertLessEqual({op["bound"] for op in result["operators"]}, {"launch", "memory", "compute"})
        self.assertLessEqual({op["source"] for op in result["operators"]}, {"fitted", "roofline", "extrapolated"})

    def test_gaps_are_those_of_element_wise_launches(self):
        operators = self.json("explain", "experiment.yaml")["operators"]
        self.assertLessEqual({"gemm", "moe", "attention", "linear", "conv", "element_wise", "host"},
                             {op["family"] for op in operators})
        for op in operators:
            gaps = op["launches"] * LAUNCH_GAP_US if op["family"] == "element_wise" else 0.0
            self.assertAlmostEqual(op["gap_us"], gaps, places=6, msg=op)
            self.assertLessEqual(op["gap_us"], op["time_us"])

    def test_the_linear_operator_is_the_measured_kernel_in_mixed_phases(self):
        result = self.json("explain", "experiment.yaml", "--batch", "64", "--context", "4096")
        # Four rows at every fill 0..15, of which four flush.
        self.assertEqual((result["buffered_tokens"], result["flushes"]), (4 * sum(range(16)), 4))
        expected = LINEAR_LAYERS * buffered_us(64, 4 * sum(range(16)), 4, 16, 16)
        fitted = [op for op in result["operators"] if op["source"] == "fitted"]
        self.assertEqual([op["count"] for op in fitted], [LINEAR_LAYERS])
        self.assertAlmostEqual(fitted[0]["time_us"] / expected, 1.0, delta=0.02)
        gate_weights = 2 * 2 * 32  # A_log and dt_bias of every value head, bf16
        self.assertEqual(fitted[0]["bytes"],
                         LINEAR_LAYERS * (buffered_bytes(64, 4 * sum(range(16)), 4) + gate_weights))

    def test_it_is_the_step_that_run_takes(self):
        run = self.json("run", "experiment.yaml")
        self.assertAlmostEqual(self.json("explain", "experiment.yaml")["step_us"], run["step_us"], places=5)

    def test_longer_contexts_cost_attention_alone(self):
        def times(context):
            result = self.json("explain", "experiment.yaml", "--context", context)
            return {op["name"]: op["time_us"] for op in result["operators"]}

        short, long = times(1024), times(65536)
        self.assertEqual([name for name in short if long[name] != short[name]],
                         [name for name in short if "attention" in name and long[name] > short[name]])
        self.assertNotEqual(short, long)

    def test_recurrent_form(self):
        result = self.json("explain", "experiment.yaml", "--set", "linear.form=recurrent")
        self.assertEqual((result["form"], result["buffered_tokens"], result["flushes"]), ("recurrent", 0, 0))
        length_one = self.json("explain", "experiment.yaml", "--set", "linear.buffer_length=1")
        self.assertEqual(length_one["step_us"], result["step_us"])

    def test_graph_for_graphviz(self):
        text = self.kvsim("explain", "experiment.yaml", "--dot").stdout
        self.assertTrue(text.startswith("digraph step {") and text.endswith("}\n"))
        self.assertIn("layer L x 30", text)
        self.assertRegex(text, r'moe\.shared_up[^]]*style=dashed|moe\.router[^]]*style=dashed')
        self.refused("explain", "experiment.yaml", "--dot", "--json", says=["--json"])

    def test_engines_differ_by_what_they_spend_between_kernels(self):
        def step(engine):
            return self.json("explain", "experiment.yaml", "--set", f"engine={engine}")["step_us"]

        self.assertLess(step("ideal"), step("vllm"))
        self.assertLess(step("ideal"), step("sglang"))

    def test_ranks_share_a_model(self):
        one = self.json("explain", "experiment.yaml")
        two = self.json("explain", "experiment.yaml", "--set", "parallelism.tp=2")
        bytes_of = [{op["name"]: op["bytes"] for op in result["operators"]} for result in (one, two)]
        self.assertEqual(bytes_of[0]["linear.buffered"], 2 * bytes_of[1]["linear.buffered"])
        self.assertEqual({name for name in bytes_of[1] if "reduce" in name or "gather" in name},
                         {"embedding.all_reduce", "mixer.all_reduce", "ffn.all_reduce", "logits.gather"})
        self.refused("explain", "experiment.yaml", "--set", "parallelism.tp=3", says=["cannot be divided over 3 ranks"])
        weights = [self.json("capacity", "experiment.yaml", "--set", f"parallelism.tp={tp}")["weights_bytes"] for tp in (1, 2)]
        self.assertTrue(weights[0] / 2 < weights[1] < 0.52 * weights[0])  # norms and routers are held by both

    def test_a_prompt(self):
        result = self.json("explain", "experiment.yaml", "--prefill", 2048)
        names = {op["name"] for op in result["operators"]}
        self.assertLessEqual({"linear.chunk_prefill", "attention.prefill"}, names)
        self.assertNotIn("attention.decode", names)
        cached = self.json("explain", "experiment.yaml", "--prefill", 2048, "--context", 4096)
        self.assertGreater(cached["step_us"], result["step_us"])
        self.assertEqual((result["context"], cached["context"]), (0, 4096))

    def test_several_prompts_at_once(self):
        one, four = (self.json("explain", "experiment.yaml", "--prefill", 512, "--batch", batch) for batch in (1, 4))
        self.assertEqual((one["batch"], four["batch"], four["prefill_tokens"]), (1, 4, 2048))
        flops = [{op["name"]: op["flops"] for op in step["operators"]} for step in (one, four)]
        # Pairs of a query and a key are those of each prompt; a product sees all tokens.
        for name in ("attention.prefill", "attention.o_proj", "lm_head"):
            self.assertEqual(flops[1][name], 4 * flops[0][name], name)

    def test_prompts_that_do_not_fit_are_said_not_to(self):
        small = ["experiment.yaml", "--set", "device.memory=80 GiB", "--prefill", 8192]
        self.assertTrue(self.json("explain", *small)["fits"])
        self.assertFalse(self.json("explain", *small, "--batch", 4096)["fits"])
        self.assertIn("does not fit", self.kvsim("explain", *small, "--batch", 4096).stdout)
        self.refused("explain", "experiment.yaml", "--prefill", 1 << 24, "--context", 1 << 30, says=["--prefill"])

    def test_ranks_are_named(self):
        tp = ["--set", "parallelism.tp=2"]
        self.assertEqual(self.json("explain", "experiment.yaml", *tp)["parallelism"], {"tp": 2, "ep": 1, "attention_dp": 1})
        self.assertIn("(one rank of tp 2)", self.kvsim("explain", "experiment.yaml", *tp).stdout)
        sent = ["--set", "parallelism={tp: 2, ep: 2, attention_dp: 2, experts: all_to_all}"]
        self.assertIn("(one rank of tp 2, ep 2 by all_to_all, attention_dp 2)",
                      self.kvsim("explain", "experiment.yaml", *sent).stdout)
        self.refused("explain", "experiment.yaml", "--set", "model=qwen3.5-4b", "--set", "model=qwen3.5-9b",
                     says=["--set: model is set twice"])
        self.refused("explain", "experiment.yaml", "--set", "schema=kvsim/experiment/1", says=["--set: schema"])

    def test_table_without_json(self):
        text = self.kvsim("explain", "experiment.yaml").stdout
        self.assertIn("decode step of 32 sequences at context 1024", text)
        self.assertIn("roofline", text)

    def test_the_phase_of_a_buffer_is_said_to_be_one_of_a_cycle(self):
        # Seven rows at buffers of 16: none flushes in this step, where a run averages 7 / 16 flushes per step.
        self.assertIn("0 flushes (one step; run averages over the buffer's cycle)\n",
                      self.kvsim("explain", "experiment.yaml", "--batch", 7).stdout)
        self.assertIn("recurrent form\n", self.kvsim("explain", "experiment.yaml", "--set", "linear.form=recurrent").stdout)

    def test_what_a_workload_does_not_fix_is_said_to_be_assumed(self):
        arrivals = ["experiment.yaml", "--set", "workload={kind: poisson, rate: 1 /s, requests: 3, prompt_tokens: {constant: 10}, "
                                                "output_tokens: {constant: 10}}"]
        text = self.kvsim("explain", *arrivals).stdout
        self.assertIn("decode step of 1 sequences at context 1024", text)
        self.assertIn("\nassumed, because the workload is not steady: --batch 1 --context 1024\n", text)
        self.assertIn("not steady: --context 1024\n", self.kvsim("explain", *arrivals, "--batch", 8).stdout)
        for words in ([*arrivals, "--batch", 8, "--context", 10], [*arrivals, "--prefill", 512], ["experiment.yaml"]):
            self.assertNotIn("assumed", self.kvsim("explain", *words).stdout)

    def test_a_step_that_does_not_fit_says_so(self):
        self.assertTrue(self.json("explain", "experiment.yaml")["fits"])
        arguments = ["explain", "experiment.yaml", "--batch", 4000, "--context", 100000]
        self.assertFalse(self.json(*arguments)["fits"])
        self.assertIn("does not fit", self.kvsim(*arguments).stdout)

    def test_more_tokens_than_64_bits_can_price_are_refused(self):
        self.refused("explain", "experiment.yaml", "--batch", 1 << 20, "--context", 1 << 30, says=["--context"])

    def test_refusals(self):
        self.refused("explain", "experiment.yaml", "--batch", "0", says=["--batch"])
        self.refused("explain", "experiment.yaml", "--set", "linear.form=direct", says=["direct"])


if __name__ == "__main__":
    unittest.main()
