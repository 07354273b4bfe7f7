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
        result = self.json("capacity", "experiment.yaml", "--set", "device.memory=40 GiB")
        self.assertEqual((result["requests"], result["limit"]), (0, "weights"))

    def test_table_without_json(self):
        text = self.kvsim("capacity", "experiment.yaml").stdout
        self.assertIn("60.00 MiB", text)
        self.assertIn("limited by state_slots", text)

    def test_refusals(self):
        self.refused("capacity", "experiment.yaml", "--set", "model=none", says=["model", "none"])
        self.refused("capacity", "experiment.yaml", "--tokens", "0", says=["--tokens"])


if __name__ == "__main__":
    unittest.main()
