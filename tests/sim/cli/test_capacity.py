"""kvsim capacity: published sizes of the models, and the limit that binds."""

import unittest

from support import CliTest


class Capacity(CliTest):
    def test_json_has_the_documented_keys(self):
        result = self.json("capacity", "experiment.yaml")
        self.assertEqual(set(result["per_request"]), {"state_bytes", "conv_bytes", "buffer_bytes", "kv_bytes_per_token"})
        for name in ("slots_per_request", "weights_bytes", "requests"):
            self.assertIsInstance(result[name], int, name)
        self.assertIsInstance(result["limit"], str)

    def test_sizes_of_the_models(self):
        # Layers, value heads and KV heads: config.json of each model. State: v_heads x 128 x 128 fp32. Convolution: 2 key
        # and 1 value projection, 3 columns, bf16. Ring: 16 records of u (bf16), k (bf16) and gate (fp32). KV: K and V of
        # 256 channels per head, bf16.
        for model, linear, full, v_heads, kv_heads in (("qwen3.5-4b", 24, 8, 32, 4), ("qwen3.5-27b", 48, 16, 48, 4),
                                                       ("qwen3.5-35b-a3b", 30, 10, 32, 2)):
            with self.subTest(model):
                sizes = self.json("capacity", "experiment.yaml", "--set", f"model={model}")["per_request"]
                self.assertEqual(sizes["state_bytes"], linear * v_heads * 128 * 128 * 4)
                self.assertEqual(sizes["conv_bytes"], linear * (2 * 16 * 128 + v_heads * 128) * 3 * 2)
                self.assertEqual(sizes["buffer_bytes"],
                                 linear * 16 * (2 * v_heads * 128 + 2 * 16 * 128 + 4 * v_heads))
                self.assertEqual(sizes["kv_bytes_per_token"], full * 2 * kv_heads * 256 * 2)

    def test_35b_as_published(self):
        sizes = self.json("capacity", "experiment.yaml")["per_request"]
        self.assertEqual(sizes["state_bytes"], 60 * 2**20)
        self.assertAlmostEqual(sizes["conv_bytes"] / 2**20, 1.41, delta=0.005)
        self.assertEqual(sizes["kv_bytes_per_token"], 20480)

    def test_recurrent_form_has_no_buffer(self):
        result = self.json("capacity", "experiment.yaml", "--set", "linear.form=recurrent")
        self.assertEqual(result["per_request"]["buffer_bytes"], 0)
        buffered = self.json("capacity", "experiment.yaml")
        self.assertGreater(result["requests"], buffered["requests"])

    def test_limits(self):
        def limit(*arguments):
            return self.json("capacity", "experiment.yaml", *arguments)["limit"]

        self.assertEqual(limit(), "state_slots")
        self.assertEqual(limit("--tokens", "1000000"), "kv_tokens")
        self.assertEqual(limit("--set", "engine.max_running_requests=4"), "max_running_requests")

    def test_not_fitting_is_a_result(self):
        for engine in ("sglang", "vllm", "ideal"):
            with self.subTest(engine):
                small = ["experiment.yaml", "--set", "device.memory=40 GiB", "--set", f"engine={engine}"]
                result = self.json("capacity", *small)
                self.assertEqual((result["requests"], result["limit"]), (0, "weights"))
                sentence = f"GiB of weights; {engine} may use "
                text = self.kvsim("capacity", *small).stdout
                self.assertRegex(text, r"0 requests .*, limited by weights\n.* does not fit h200: [\d.]+ " + sentence)
                self.assertRegex(text, r"all of it +-  per request\n$")  # shares of a pool that is not there
                self.assertIn(sentence, self.kvsim("run", *small, code=2).stderr)
                lines = self.kvsim("capacity", *small, "--compare").stdout.splitlines()
                self.assertEqual(sum(sentence in line for line in lines), 2)  # without the MTP module and with it

    def test_drafts_that_come_twice_are_refused(self):
        self.refused("capacity", "experiment.yaml", "--compare", "--drafts", "3,0,3", says=["--drafts: 3 comes twice"])

    def test_table_without_json(self):
        text = self.kvsim("capacity", "experiment.yaml").stdout
        self.assertRegex(text, r"state, one copy +60\.00  per request")
        self.assertIn("limited by state_slots", text)

    def test_bytes_of_a_request_add_up(self):
        for engine in ("sglang", "vllm", "ideal"):
            with self.subTest(engine):
                result = self.json("capacity", "experiment.yaml", "--set", f"engine={engine}", "--drafts", "3", "--tokens", "2048")
                request = result["request"]
                total = request.pop("total_bytes")
                self.assertEqual(sum(request.values()), total)
                self.assertEqual((result["form"], result["drafts"]), ("verify_buffered", 3))
                self.assertLessEqual(result["requests"] * total + result["weights_bytes"] + result["activations_bytes"],
                                     143771 * 2**20)

    def test_speculation_in_sglang(self):
        # 60 MiB of state and 30 x 3 x 8,192 x 2 B of window; 1 + 3 copies more with stored states, none with a ring.
        copy = 60 * 2**20 + 30 * 3 * 8192 * 2
        stored = self.json("capacity", "experiment.yaml", "--drafts", "3", "--set", "linear.form=recurrent")
        self.assertEqual(stored["request"]["temporary_bytes"], 4 * copy)
        self.assertEqual((stored["requests"], stored["limit"]), (48, "max_running_requests"))  # SGLang's default
        self.assertGreater(stored["memory_requests"], 48)
        self.assertEqual(self.json("capacity", "experiment.yaml", "--drafts", "3")["request"]["temporary_bytes"], 0)

    def test_alternatives_side_by_side(self):
        rows = self.json("capacity", "experiment.yaml", "--compare", "--drafts", "0,3", "--set",
                         "engine.memory.slots_per_request=3")["alternatives"]
        forms = [("recurrent", 0), ("buffered", 0), ("verify_stored", 3), ("verify_buffered", 3)]
        self.assertEqual([(row["engine"], row["form"], row["drafts"]) for row in rows],
                         [(engine, *form) for engine in ("sglang", "ideal", "vllm") for form in forms])
        self.assertEqual(rows[0]["slots_per_request"], 3)  # the experiment's engine as it is set
        by_key = {(row["engine"], row["form"]): row["memory_requests"] for row in rows}
        for engine in ("sglang", "ideal", "vllm"):
            self.assertGreater(by_key[engine, "verify_buffered"], by_key[engine, "verify_stored"])
            self.assertGreater(by_key[engine, "recurrent"], by_key[engine, "buffered"])
        alone = self.json("capacity", "experiment.yaml", "--drafts", "3", "--set", "engine.memory.slots_per_request=3")
        self.assertEqual(rows[3], alone)
        text = self.kvsim("capacity", "experiment.yaml", "--compare").stdout
        self.assertEqual(len(text.splitlines()), 4 + 3 * 4 * 2)

    def test_published_requests_of_vllm(self):
        # Nemotron-3-Super on a B300, T = 4, length 2048: 213 natively, 694 with a ring of 16 + 4. The pool is not published:
        # it is the one that 213 implies, 213 x 21 + 1 blocks of 9 x 4,224 x 1,024 B. Beside weights in bf16 it would not fit.
        fp4 = ["--set", "model.weights={experts: {dtype: fp4, block: [1, 16], scale: fp8}}"]
        arguments = ["--set", "model=nemotron-3-super-120b-a12b", "--set", "device=b300", "--set", "engine=vllm",
                     "--set", f"engine.memory.pool={(213 * 21 + 1) * 9 * 4224 * 1024} B", "--drafts", "3", "--tokens", "2048"]
        native = self.json("capacity", "experiment.yaml", *arguments, *fp4, "--set", "linear.form=recurrent")
        ring = self.json("capacity", "experiment.yaml", *arguments, *fp4)
        self.assertEqual((native["requests"], native["limit"]), (213, "blocks"))
        self.assertEqual((native["paged"]["state_blocks_per_request"], native["paged"]["kv_blocks_per_request"]), (20, 1))
        self.assertAlmostEqual(ring["requests"] / native["requests"], 694 / 213, delta=0.03 * 694 / 213)
        bf16 = self.json("capacity", "experiment.yaml", *arguments, "--set", "model.weights={}")
        self.assertEqual((bf16["requests"], bf16["limit"]), (0, "weights"))
        self.assertRegex(self.kvsim("capacity", "experiment.yaml", *arguments, "--set", "model.weights={}").stdout,
                         r"limited by weights\na pool of [\d.]+ GiB beside [\d.]+ GiB of weights does not fit b300 with")

    def test_ranks_and_groups(self):
        arguments = ["--set", "parallelism.tp=2", "--set", "engine=ideal"]
        one = self.json("capacity", "experiment.yaml", "--set", "engine=ideal")["per_request"]
        two = self.json("capacity", "experiment.yaml", *arguments)["per_request"]
        self.assertEqual({key: 2 * value for key, value in two.items()}, one)
        dp = self.json("capacity", "experiment.yaml", *arguments, "--set", "parallelism.attention_dp=2")
        self.assertEqual(dp["per_request"], one)  # each rank holds whole requests, half of them
        self.assertEqual(dp["max_running_requests"], 2048)
        for words in ([], ["--compare"]):
            self.assertIn(" on h200 (one rank of tp 2)", self.kvsim("capacity", "experiment.yaml", *arguments, *words).stdout)
            self.assertNotIn("rank", self.kvsim("capacity", "experiment.yaml", *words).stdout)

    def test_a_request_that_can_never_fit_is_refused_at_once(self):
        # As long as 10 million tokens, 20,480 B each: 205 GB.
        for engine, limit in (("sglang", "kv_tokens"), ("vllm", "blocks"), ("ideal", "bytes")):
            with self.subTest(engine):
                result = self.json("capacity", "experiment.yaml", "--set", f"engine={engine}", "--tokens", "10000000")
                self.assertEqual((result["requests"], result["limit"]), (0, limit))
                run = self.json("run", "experiment.yaml", "--set", f"engine={engine}", "--set",
                                "workload={kind: poisson, requests: 3, rate: 1 /s, prompt_tokens: {constant: 10000000}, "
                                "output_tokens: {constant: 1}}")
                self.assertEqual((run["requests"]["rejected"], run["rejected_by"][limit], run["steps"]), (3, 3, 0))

    def test_refusals(self):
        self.refused("capacity", "experiment.yaml", "--set", "model=none", says=["model", "none"])
        self.refused("capacity", "experiment.yaml", "--tokens", "0", says=["--tokens"])
        self.refused("capacity", "experiment.yaml", "--drafts", "-1", says=["--drafts"])
        self.refused("capacity", "experiment.yaml", "--drafts", "1,2", says=["--drafts", "without --compare"])


if __name__ == "__main__":
    unittest.main()
