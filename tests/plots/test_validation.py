"""plots/validation.py: errors by family and source, rows that a fit saw, and panels of what is absent."""

import unittest

from figure_case import FigureCase, write_csv

TABLE = ["family", "file", "line", "held_out", "measured_us", "predicted_us"]
KERNELS = ["form", "held_out", "measured_us", "predicted_us"]
STEPS = ["device", "model", "metric", "variant", "batch", "context", "measured", "predicted", "uncertainty", "power_limited"]


def table(family, measured, predicted, held_out="true"):
    return {"family": family, "held_out": held_out, "measured_us": measured, "predicted_us": predicted}


def point(metric, measured, predicted, variant="", batch=1, limited="false"):
    return {"device": "h200", "model": "small", "metric": metric, "variant": variant, "batch": batch, "context": 1024,
            "measured": measured, "predicted": predicted, "uncertainty": 0.1, "power_limited": limited}


class Validation(FigureCase):
    script_name = "validation.py"
    reads_profile = False

    def setUp(self):
        super().setUp()
        rows = [{"form": form, "held_out": held, "measured_us": 10, "predicted_us": predicted}
                for form, held, predicted in (("recurrent", "true", 11), ("recurrent", "false", 20), ("", "true", 99),
                                              ("buffered", "true", 9.5))]
        write_csv(self.folder / "kernels.csv", KERNELS, rows)
        write_csv(self.folder / "steps.csv", STEPS, [point("tpot_ms", 4, 5), point("ttft_ms", 100, 90),
                                                     point("buffer_gain", 1.0, 1.02)])

    def rows(self):
        lines = self.run_script(0, f"--rows={self.folder}", f"--kernels={self.folder / 'kernels.csv'}",
                                f"--steps={self.folder / 'steps.csv'}").stdout.splitlines()
        self.assert_figure("validation")
        return lines

    def errors(self, lines, name):
        """(points, median, P90, worst) of the line that has `name`."""
        return [tuple(line.split()[-4:]) for line in lines if name in line]

    def test_what_is_absent_says_so(self):
        lines = self.rows()
        self.assertEqual([line.split(":")[0].split() for line in lines if "left out" in line],
                         [["published", "tables", "operators", "left", "out"],
                          ["whole", "steps", "decode", "steps", "left", "out"]])
        self.assertEqual(self.errors(lines, "recurrent decode"), [("1", "10.0%", "10.0%", "10.0%")])  # held out alone
        self.assertEqual(self.errors(lines, "buffered decode"), [("1", "5.0%", "5.0%", "5.0%")])
        self.assertEqual(self.errors(lines, "TPOT") + self.errors(lines, "TTFT") + self.errors(lines, "buffer's gain"),
                         [("1", "25.0%",) + ("25.0%",) * 2, ("1", "10.0%", "10.0%", "10.0%"), ("1", "2.0%", "2.0%", "2.0%")])

    def test_all_sources(self):
        # Errors 10, 20 and 60 %: P90 lies four fifths of the way from the second to the third.
        write_csv(self.folder / "h200_tables.csv", TABLE, [table("gemm_bf16", 100, us) for us in (110, 80, 160)]
                  + [table("gemm_bf16", 100, 500, held_out="false"), table("new_family", 1, 1)])
        write_csv(self.folder / "l40s_tables.csv", TABLE, [table("gemm_bf16", 100, 100)])
        write_csv(self.folder / "whole_steps.csv", STEPS, [point("decode_us", 1000, 900, "packed_2s", limited="true"),
                                                           point("decode_us", 1000, 1050, "mixed")])
        lines = self.rows()
        self.assertFalse([line for line in lines if "left out" in line])
        self.assertEqual(self.errors(lines, "GEMM, bf16"), [("3", "20.0%", "52.0%", "60.0%"), ("1", "0.0%", "0.0%", "0.0%")])
        self.assertEqual(len(self.errors(lines, "new family")), 1)
        self.assertEqual(self.errors(lines, "decode steps"), [("1", "10.0%", "10.0%", "10.0%"), ("1", "5.0%", "5.0%", "5.0%")])

    def test_missing_input_is_one_message(self):
        message = self.run_script(2, f"--rows={self.folder}", f"--kernels={self.folder / 'absent.csv'}").stderr
        self.assertIn("absent.csv", message)
        self.assertEqual(len(message.splitlines()), 1)
        write_csv(self.folder / "a100_tables.csv", TABLE, [])
        self.assertIn("a100_tables.csv", self.run_script(2, f"--rows={self.folder}").stderr)


if __name__ == "__main__":
    unittest.main()
