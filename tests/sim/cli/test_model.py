"""kvsim model: tables of committed models, and model files from config.json."""

import json
import unittest

from support import ROOT, CliTest

LAYERS = ["linear_attention"] * 3 + ["full_attention"]
QWEN = {
    "model_type": "qwen3_5", "tie_word_embeddings": True, "vision_config": {"depth": 24},
    "text_config": {
        "hidden_size": 2560, "num_hidden_layers": 32, "layer_types": LAYERS * 8, "vocab_size": 248320,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "num_attention_heads": 16,
        "num_key_value_heads": 4, "head_dim": 256, "intermediate_size": 9216, "hidden_act": "silu",
        "mtp_num_hidden_layers": 1, "new_thing": 7,
    },
}


class Model(CliTest):
    def test_show_prints_kinds_ends_and_bytes(self):
        text = self.kvsim("model", "show", "nemotron-3-super-120b-a12b").stdout
        for part in ("mamba2 8/128 heads, state 64 x 128", "latent 1024, shared 5376", "120668.71", "layers *E"):
            self.assertIn(part, text)

    def test_show_json(self):
        shown = self.json("model", "show", "qwen3.5-35b-a3b")
        self.assertEqual(shown["text"]["parameters"] + shown["mtp"]["parameters"] + 446_571_248, 35_951_822_704)
        self.assertEqual([(kind["kind"], kind["count"]) for kind in shown["layers"]], [("L", 30), ("F", 10)])
        self.assertEqual(sum(kind["count"] * kind[part]["bytes"] for kind in shown["layers"]
                             for part in ("linear", "attention", "ffn", "norms")) + 2 * 2048, shown["body"]["bytes"])
        self.assertEqual(shown["per_request"], {
            "state_bytes": 30 * 2 * 2 ** 20, "conv_bytes": 30 * 8192 * 3 * 2, "record_bytes": 30 * 12416,
            "kv_bytes_per_token": 20480, "mtp_kv_bytes_per_token": 2048})

    def test_show_one_rank(self):
        rank = self.json("model", "show", "qwen3-next-80b-a3b", "--tp", 4)
        self.assertEqual(rank["per_request"]["state_bytes"], 36 * 2 * 2 ** 20 // 4)
        self.assertEqual(rank["per_request"]["kv_bytes_per_token"], 12 * 2 * 1 * 256 * 2)  # one of two KV heads
        self.refused("model", "show", "qwen3-next-80b-a3b", "--tp", 3,
                     says=["model qwen3-next-80b-a3b: linear: 32 value heads cannot be divided over 3 ranks"])
        self.refused("model", "show", "qwen3-next-80b-a3b", "--tp", 0, says=["--tp"])

    def test_import_to_a_file_that_then_has_that_name(self):
        config = self.write("config.json", json.dumps(QWEN))
        result = self.kvsim("model", "import", config, "--out", "configs/models/mine.yaml", code=1)  # no such folder
        self.assertIn("configs/models", result.stderr)
        (self.folder / "configs/models").mkdir(parents=True)
        result = self.kvsim("model", "import", config, "--out", "configs/models/mine.yaml")
        self.assertEqual(result.stdout, "configs/models/mine.yaml\n")
        self.assertEqual(result.stderr, f"{config}: not understood: text_config.new_thing\n")
        mine = self.json("model", "show", "mine")
        committed = self.json("model", "show", ROOT / "configs/models/qwen3.5-4b.yaml")
        self.assertEqual((mine.pop("model"), committed.pop("model")), ("mine", "qwen3.5-4b"))
        self.assertEqual(mine, committed)

    def test_import_to_stdout_is_named_after_the_folder(self):
        folder = self.folder / "Qwen Qwen3.5-4B"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(QWEN))
        text = self.kvsim("model", "import", "Qwen Qwen3.5-4B/config.json").stdout
        self.assertIn("\nname: qwen-qwen3.5-4b\n", text)
        self.write("copy.yaml", text)
        h, queries, keys = 2560, 16 * 256, 4 * 256
        layer = h * (2 * queries + 2 * keys) + queries * h + 2 * 256 + 3 * h * 9216 + 2 * h
        self.assertEqual(self.json("model", "show", "copy.yaml")["mtp"]["parameters"], 2 * h * h + 3 * h + layer)

    def test_refusals(self):
        broken = {**QWEN, "text_config": {**QWEN["text_config"], "head_dim": "256"}}
        del broken["text_config"]["vocab_size"]
        config = self.write("config.json", json.dumps(broken))
        head_dim, text_config = (json.dumps(broken).index(f'"{key}"') + 1 for key in ("head_dim", "text_config"))
        self.refused("model", "import", config, "--out", "new.yaml",
                     says=[f"{config}:1:{head_dim}: text_config.head_dim: expected a whole number",
                           f"{config}:1:{text_config}: text_config.vocab_size: missing required key"])
        self.refused("model", "import", "absent.json", says=["absent.json: no such file"])
        self.refused("model", "show", "qwen3.5-35b-a3", says=["did you mean `qwen3.5-35b-a3b`?"])
        self.refused("model", says=["subcommand"])

    def test_a_model_whose_kernels_nobody_measured_runs_on_the_roofline(self):
        step = self.json("explain", "experiment.yaml", "--set", "model=kimi-linear-48b-a3b")
        self.assertEqual({op["source"] for op in step["operators"]}, {"roofline"})
        capacity = self.json("capacity", "experiment.yaml", "--set", "model=kimi-linear-48b-a3b")
        self.assertEqual(capacity["weights_bytes"], 2 * 49_122_681_728)


if __name__ == "__main__":
    unittest.main()
