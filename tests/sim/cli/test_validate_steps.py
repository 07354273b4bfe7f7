"""kvsim validate-steps: prices of whole steps against steps that others measured."""

import csv
import statistics
import sys
import unittest

from support import ROOT, CliTest

STEADY = ROOT / "configs/experiments/steady_decode.yaml"
PUBLISHED = ROOT / "profiles/published_steps.csv"
WHOLE_STEPS = ROOT.parent / "shared/measurements/h200_sxm/whole_step_decode.csv"
FULL_CLOCK_MHZ = 1980


class ValidateSteps(CliTest):
    def points(self, table):
        self.kvsim("validate-steps", STEADY, "--table", table, "--rows", "rows.csv")
        with open(self.folder / "rows.csv", encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        for row in rows:
            row["measured"], row["predicted"] = float(row["measured"]), float(row["predicted"])
        return rows

    def test_time_per_token_that_sglang_serves_at_concurrency_one(self):
        rows = [r for r in self.points(PUBLISHED) if r["metric"] == "tpot_ms"]
        self.assertEqual(len(rows), 5)
        for row in rows:
            self.assertLess(abs(row["predicted"] / row["measured"] - 1), 0.08, row)

    def test_time_to_first_token_that_sglang_serves_at_concurrency_one(self):
        # A client measures the server too (HTTP, tokeniser, scheduler without overlap), which a step has not: the forward pass
        # takes less than that, and most of it.
        rows = [r for r in self.points(PUBLISHED) if r["metric"] == "ttft_ms"]
        self.assertEqual(len(rows), 5)
        for row in rows:
            self.assertTrue(0.50 < row["predicted"] / row["measured"] < 1.0, row)

    def test_the_prompts_that_sglang_served_are_those_that_its_throughput_tells(self):
        # Lengths of bench_serving's ten prompts and answers (seed 1, up to 8192 and 1024), and the published tokens/s of
        # prompts and answers at their nominal ratio: what they give together is not what prompts of 8192 tokens would.
        prompts = [5158, 236, 3981, 5193, 7936, 906, 2764, 7814, 2896, 5057]
        answers = [145, 130, 973, 584, 750, 509, 391, 282, 179, 277]
        self.assertEqual(statistics.median(prompts), 4519)
        self.assertAlmostEqual(statistics.median(p + a / 2 for p, a in zip(prompts, answers)), 4831, delta=0.5)
        for ttft, tpot, tokens_per_s in ((91, 3.41, 2480), (140, 5.16, 1642), (458, 14.87, 566)):  # 4B, 9B, 27B
            published = tokens_per_s * 1024 / 9216
            drawn = sum(answers) / sum(ttft + (a - 1) * tpot for a in answers) * 1e3
            fixed = 1024 / (ttft + 1023 * tpot) * 1e3
            self.assertLess(abs(drawn / published - 1), 0.005)
            self.assertGreater(fixed / published - 1, 0.03)

    def test_gain_of_replay_on_h100(self):
        rows = [r for r in self.points(PUBLISHED) if r["metric"] == "buffer_gain"]
        self.assertEqual([int(r["batch"]) for r in rows], [1, 8, 32, 128, 512])
        for row in rows:
            self.assertLess(abs(row["predicted"] - row["measured"]), 0.04, row)

    def test_whole_decode_steps_on_h200(self):
        if not WHOLE_STEPS.exists():
            print("SKIPPED: no whole_step_decode.csv", file=sys.stderr)
            return
        with open(WHOLE_STEPS, encoding="utf-8", newline="") as file:
            clocks = {(r["model"], r["batch"], r["context"], r["variant"]): int(r["sm_mhz"]) for r in csv.DictReader(file)}
        rows = self.points(WHOLE_STEPS)
        errors = [abs(r["predicted"] / r["measured"] - 1) for r in rows]
        self.assertEqual(len(errors), 77)
        self.assertLess(statistics.median(errors), 0.03)
        self.assertLess(max(errors), 0.08)

        steps = {(r["model"], r["batch"], r["context"], r["variant"]): r for r in rows}
        self.assertEqual({key for key, row in steps.items() if row["power_limited"] == "true"},
                         {key for key in steps if clocks[key] < FULL_CLOCK_MHZ})
        compared = 0
        for (model, batch, context, variant), packed in steps.items():
            if variant != "packed":
                continue
            for name in ("mixed", "mid"):
                buffered = steps.get((model, batch, context, name))
                if buffered:
                    break
            difference = (packed["predicted"] / buffered["predicted"]) - (packed["measured"] / buffered["measured"])
            # At the power limit the two steps ran at clocks that differ by up to a tenth: larger, and of no single sign.
            slowed = clocks[model, batch, context, name] < FULL_CLOCK_MHZ
            self.assertLess(abs(difference), 0.07 if slowed else 0.03, (model, batch, context))
            compared += 1
        self.assertEqual(compared, 21)

    def test_what_the_rows_say_cannot_be_set(self):
        for assignment in ("device=h100", "model=qwen3.5-4b", "linear.form=recurrent", "workload.batch=3"):
            self.refused("validate-steps", STEADY, "--table", PUBLISHED, "--set", assignment,
                         says=[f"--set {assignment}: the rows of the table say"])

    def test_refusals(self):
        self.refused("validate-steps", STEADY, "--table", "absent.csv", says=["absent.csv"])
        header = "device,model,metric,batch,context,value,source\n"
        bad = self.write("bad.csv", header + "h200,qwen3.5-4b,speed,1,1,1,x\n")
        self.refused("validate-steps", STEADY, "--table", bad, says=["bad.csv:2", "speed"])
        absurd = self.write("absurd.csv", header + "h200,qwen3.5-4b,tpot_ms,100000000000,1,1,x\n"
                            "h200,qwen3.5-4b,tpot_ms,1,1,1e300,x\nh200,qwen3.5-4b,tpot_ms,1000,1099511627776,1,x\n")
        self.refused("validate-steps", STEADY, "--table", absurd,
                     says=["absurd.csv:2: batch: expected at most 1048576 sequences", "absurd.csv:3: value: expected",
                           "absurd.csv:4: batch: expected"])
        steps = self.write("steps.csv", "model,batch,context,variant,step_us,step_us_min,sm_mhz,power_w\n"
                           "qwen3.5-4b,1,1024,mixd,3400,3390,1980,300\n")
        self.refused("validate-steps", STEADY, "--table", steps, says=["steps.csv:2: variant", "got `mixd`"])
        self.refused("validate-steps", STEADY, "--table", PUBLISHED, "--rows", "/dev/null/rows.csv", says=["--rows"])


if __name__ == "__main__":
    unittest.main()
