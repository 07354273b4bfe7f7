"""kvsim linear: one linear layer by buffer length, as in KVBuffer's first version (4x L40S, Qwen3-Next)."""

import re
import unittest

from support import ROOT, CliTest

L40S = ROOT / "configs/experiments/l40s_qwen3_next.yaml"
# One of four ranks: 4 key and 8 value heads of 128.
STATE = 4 * 8 * 128 * 128
RECORD = 2 * 8 * 128 + 2 * 4 * 128 + 4 * 8
TOKEN = 2 * (2 * 4 * 128 + 8 * 128) + 2 * 2 * 8 + 2 * 8 * 128  # q, k, v, gates in, o out


def law(name):
    text = (ROOT / "profiles/l40s/published.yaml").read_text()
    return float(re.search(rf"packed_decode:.*?{name}: ([0-9.]+)", text, re.S).group(1))


class Linear(CliTest):
    def points(self, *arguments):
        result = self.json("linear", L40S, *arguments)
        return {(p["batch"], p["buffer_length"]): p for p in result["points"]}, result

    def test_bytes_of_a_cycle(self):
        points, result = self.points("--batch", "128", "--lengths", "32")
        self.assertEqual((result["tp"], result["state_bytes"], result["record_bytes"]), (4, STATE, RECORD))
        self.assertEqual(128 * STATE, 64 << 20)  # fits the 96 MiB of L2
        self.assertAlmostEqual(points[128, 1]["bytes"], 128 * (2 * STATE + TOKEN), places=3)
        # S and S/m of the flush, (m - 1)/2 records read, one written.
        self.assertAlmostEqual(points[128, 32]["bytes"], 128 * (STATE * (1 + 1 / 32) + RECORD * 16.5 + TOKEN), places=3)

    def test_cold_time_is_that_of_the_bytes(self):
        points, _ = self.points("--batch", "128,1024", "--lengths", "16,32")
        for point in points.values():
            memory = point["bytes"] / (law("dram_gb_per_s") * 1e3)
            self.assertTrue(memory < point["cold_us"] < memory + law("floor_us") + law("latency_us"), point)
            self.assertEqual(point["source"], "fitted" if point["buffer_length"] == 1 else "extrapolated")

    def test_warm_time_is_shorter_while_states_and_rings_fit(self):
        points, _ = self.points("--batch", "128,256", "--lengths", "32")
        rate = law("dram_gb_per_s") * law("l2_over_dram") * 1e3
        for length in (1, 32):
            memory = points[128, length]["bytes"] / rate
            self.assertTrue(memory < points[128, length]["warm_us"] < memory + law("floor_us") + law("latency_us"))
            self.assertEqual(points[256, length]["warm_us"], points[256, length]["cold_us"])  # 128 MiB of states

    def test_models_without_linear_layers_and_bad_lengths_are_refused(self):
        self.refused("linear", L40S, "--lengths", "0", says=["--lengths"])
        self.refused("linear", L40S, "--set", "model=absent", says=["model"])


if __name__ == "__main__":
    unittest.main()
