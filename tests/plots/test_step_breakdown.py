"""plots/step_breakdown.py: families, launch gaps, what is off the path, and steps that have no partner."""

import json
import unittest

from figure_case import FigureCase


def operator(name, family, us, gap=0.0, critical=True):
    return {"name": name, "family": family, "time_us": us, "gap_us": gap, "critical": critical}


def step(form, linear_us, batch=8, model="small", fits=True):
    operators = [operator("gdn.decode", "linear", linear_us), operator("lm_head", "gemm", 30.0),
                 operator("first_norm", "element_wise", 6.0, gap=2.0), operator("argmax", "element_wise", 5.0, gap=1.0),
                 operator("shared_up", "gemm", 1000.0, critical=False), operator("host_gap", "host", 10.0)]
    return {"model": model, "device": "h200", "form": form, "buffer_length": 16, "batch": batch, "context": 1024,
            "fits": fits, "step_us": sum(op["time_us"] for op in operators if op["critical"]), "step_uncertainty_us": 3.0,
            "operators": operators}


class StepBreakdown(FigureCase):
    script_name = "step_breakdown.py"
    reads_profile = False

    def write(self, *steps):
        for index, said in enumerate(steps):
            (self.folder / f"{index}.json").write_text(json.dumps(said))

    def run_steps(self, code):
        return self.run_script(code, f"--steps={self.folder}")

    def test_gains_and_shares_of_the_path(self):
        self.write(step("buffered", 29.0), step("recurrent", 149.0), step("recurrent", 149.0, 64, fits=False),
                   step("buffered", 49.0, 64, fits=False))
        lines = [line.split(maxsplit=6) for line in self.run_steps(0).stdout.splitlines()[1:5]]
        # 149 + 30 + 6 + 5 + 10 = 200 us; 80 and 100 buffered.
        self.assertEqual([line[:4] + [line[5]] for line in lines],
                         [["small", "8", "recurrent", "200", "1.00x"], ["small", "8", "buffered", "80", "2.50x"],
                          ["small", "64", "recurrent", "200", "1.00x"], ["small", "64", "buffered", "100", "2.00x"]])
        # Of 80 us: GEMM 30 (that beside the path left out), linear 29, host 10, norms 6 - 2.
        self.assertEqual(lines[1][6], "GEMM 38%, linear attention 36%, host 12%, norms, gates 5%")
        self.assert_figure("step_breakdown")

    def test_missing_input_is_one_message(self):
        self.assertIn("no JSON", self.run_steps(2).stderr)
        self.write(step("recurrent", 1.0))
        self.assertIn("small at batch 8 lacks buffered", self.run_steps(2).stderr)
        (self.folder / "0.json").write_text("{}")
        message = self.run_steps(2).stderr
        self.assertIn("not of kvsim explain", message)
        self.assertEqual(len(message.splitlines()), 1)


if __name__ == "__main__":
    unittest.main()
