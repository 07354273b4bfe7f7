"""kvsim explain --drafts: verification and the MTP module's forwards."""

import unittest

from support import CliTest


class ExplainDrafts(CliTest):
    def test_drafts_are_verified_and_proposed(self):
        plain = self.json("explain", "experiment.yaml", "--batch", "16")
        result = self.json("explain", "experiment.yaml", "--batch", "16", "--drafts", "3")
        self.assertEqual((plain["form"], plain["drafts"]), ("buffered", 0))
        self.assertEqual((result["form"], result["drafts"], result["batch"]), ("verify_buffered", 3, 16))
        # One of 16 rows flushes in every step of one token, and so do four of four tokens each.
        self.assertEqual((plain["flushes"], result["flushes"]), (1, 4))
        count = {name: sum(op["count"] for op in result["operators"] if op["name"] == name)
                 for name in ("accept", "lm_head", "draft.mtp_proj", "draft.lm_head")}
        self.assertEqual(count, {"accept": 1, "lm_head": 1, "draft.mtp_proj": 3, "draft.lm_head": 3})
        critical = [op["time_us"] for op in result["operators"] if op["critical"]]
        self.assertAlmostEqual(sum(critical), result["step_us"], places=5)
        self.assertGreater(result["step_us"], plain["step_us"])
        text = self.kvsim("explain", "experiment.yaml", "--batch", "16", "--drafts", "3").stdout
        self.assertIn("4 tokens verified and 3 drafted each", text)

    def test_static_speculation_of_the_file_is_shown(self):
        static = ["explain", "experiment.yaml", "--set", "speculation={policy: static, drafts: 3, acceptance: {rate: 0.8}}"]
        self.assertEqual(self.json(*static), self.json("explain", "experiment.yaml", "--drafts", 3))
        self.assertEqual(self.json(*static, "--drafts", 0), self.json("explain", "experiment.yaml"))
        self.assertEqual(self.json(*static, "--drafts", 1)["drafts"], 1)
        text = self.kvsim(*static).stdout
        self.assertIn("verify_buffered form", text)
        self.assertIn("4 tokens verified and 3 drafted each", text)
        self.assertIn("cached ones each, 3 drafted each\n", self.kvsim(*static, "--prefill", 512).stdout)

    def test_a_policy_that_chooses_is_said_not_to_be_shown(self):
        for policy in ("{policy: goodput, drafts: 4, acceptance: {rate: 0.5}}",
                       "{policy: table, table: [[1, 4], [8, 1]], acceptance: {rate: 0.5}}"):
            with self.subTest(policy):
                chosen = ["explain", "experiment.yaml", "--set", f"speculation={policy}"]
                self.assertEqual(self.json(*chosen)["drafts"], 0)
                self.assertIn("chooses their number; --drafts 1..4", self.kvsim(*chosen).stdout)
                self.assertNotIn("--drafts", self.kvsim(*chosen, "--drafts", 2).stdout)
        self.assertNotIn("--drafts", self.kvsim("explain", "experiment.yaml").stdout)

    def test_no_drafts_are_a_decode_step(self):
        self.assertEqual(self.json("explain", "experiment.yaml", "--drafts", "0"), self.json("explain", "experiment.yaml"))

    def test_a_model_without_an_mtp_module_is_refused(self):
        self.refused("explain", "experiment.yaml", "--drafts", "2", "--set", "model=nemotron-h-8b",
                     says=["multi-token prediction"])


if __name__ == "__main__":
    unittest.main()
