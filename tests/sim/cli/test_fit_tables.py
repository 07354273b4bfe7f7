"""kvsim fit-tables and validate --tables on tables whose law is known, and their refusals."""

import csv
import unittest

from support import CliTest

COLUMNS = ("kernel_source,phase,batch_size,seq_len,num_tokens,d_model,d_conv,num_k_heads,head_k_dim,num_v_heads,"
           "head_v_dim,model_name,latency")
SOURCE = ("--source", "someone", "--commit", "abc", "--licence", "MIT")


def conv_row(k_heads, v_heads, batch):
    """A convolution step of 2 us and its bytes at 2 TB/s, whatever the L2 holds."""
    channels = (2 * k_heads + v_heads) * 128
    ms = (2 + 16 * channels * batch / 2e6) / 1e3
    return f"causal_conv1d_update,generation,{batch},1,{batch},1024,4,{k_heads},128,{v_heads},128,m,{ms}"


class FitTables(CliTest):
    def setUp(self):
        super().setUp()
        (self.folder / "tables").mkdir()
        self.rows = [conv_row(k, v, 1 << b) for k, v in ((2, 4), (4, 8), (8, 16), (16, 32)) for b in range(11)]
        self.write_rows(self.rows)

    def write_rows(self, rows):
        (self.folder / "tables/gdn_decode.csv").write_text("\n".join([COLUMNS, *rows]) + "\n")

    def fit(self):
        return self.kvsim("fit-tables", "tables", "--device", "h200", "--out", "profile/published.yaml", *SOURCE)

    def test_fit_and_judge(self):
        (self.folder / "profile").mkdir()
        text = self.fit().stdout
        self.assertTrue(text.startswith("profile/published.yaml\n"))
        self.assertIn("conv_update", text)
        written = (self.folder / "profile/published.yaml").read_text()
        for part in ("device: h200", "name: someone", "commit: abc", "licence: MIT", "held_out: {rows: 22"):
            self.assertIn(part, written)
        families = self.json("validate", "profile", "--tables", "tables")["families"]
        self.assertEqual([f["family"] for f in families], ["conv_update"])
        self.assertLess(families[0]["held_out"]["p90"], 0.05)

        self.kvsim("validate", "profile", "--tables", "tables", "--rows", "rows.csv")
        with open(self.folder / "rows.csv", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(len(rows), len(self.rows))
        self.assertEqual([r["held_out"] for r in rows], (["false"] * 11 + ["true"] * 11) * 2)
        self.assertEqual(rows[0]["line"], "2")
        self.assertAlmostEqual(float(rows[0]["measured_us"]), 2 + 16 * 1024 / 2e6, places=3)

    def test_a_second_fit_writes_the_same_bytes(self):
        (self.folder / "profile").mkdir()
        self.fit()
        before = (self.folder / "profile/published.yaml").read_bytes()
        self.fit()
        self.assertEqual((self.folder / "profile/published.yaml").read_bytes(), before)

    def test_refusals(self):
        (self.folder / "profile").mkdir()
        arguments = ("--out", "profile/published.yaml", *SOURCE)
        self.refused("fit-tables", "absent", "--device", "h200", *arguments, says=["absent", "published tables"])
        self.refused("fit-tables", "tables", "--device", "h300", *arguments, says=["h300"])
        self.refused("fit-tables", "tables", "--device", "h200", "--out", "profile/published.yaml", "--source", "",
                     *SOURCE[2:], says=["--source", "expected a name, got nothing"])
        self.write_rows(self.rows[:3] + [self.rows[3].rsplit(",", 1)[0] + ",nan"])
        self.refused("fit-tables", "tables", "--device", "h200", *arguments,
                     says=["gdn_decode.csv:5: latency: expected a number from 1e-09 to 1e+09, got `nan`"])
        self.assertFalse((self.folder / "profile/published.yaml").exists())
        self.refused("validate", "profile", "--tables", "tables", says=["published.yaml"])


if __name__ == "__main__":
    unittest.main()
