"""plots/step_gain.py: the largest gain of every model, what reaches the reported one, and missing input."""

import unittest

from figure_case import FigureCase, write_csv

COLUMNS = ["model", "workload.context", "linear.buffer_length", "workload.batch", "status", "step_us"]


def runs(model, batch, times, context=1024):
    return [dict(zip(COLUMNS, (model, context, length, batch, "ok" if us else "infeasible", us or "")))
            for length, us in times.items()]


class StepGain(FigureCase):
    script_name = "step_gain.py"
    reads_profile = False

    def lines(self, rows):
        write_csv(self.folder / "runs.csv", COLUMNS, rows)
        return self.run_script(0, f"--runs={self.folder / 'runs.csv'}").stdout.splitlines()

    def test_the_best_length_that_fits_counts(self):
        lines = self.lines(runs("a", 8, {1: 120.0, 16: 100.0, 32: 80.0}) + runs("a", 64, {1: 120.0, 16: 100.0, 32: None})
                           + runs("a", 512, {1: None, 16: 10.0}) + runs("b", 8, {1: 100.0, 16: 99.0}))
        self.assertEqual([line.split() for line in lines[1:3]], [["a", "1024", "1.50x", "8", "32"],
                                                                 ["b", "1024", "1.01x", "8", "16"]])
        self.assertEqual(lines[3:5], ["reach 1.47x:", "a at context 1024, batch 8: 1.50x"])
        self.assert_figure("step_gain")

    def test_none_reaches_it(self):
        self.assertIn("no step that fits reaches 1.47x", self.lines(runs("a", 8, {1: 146.0, 16: 100.0})))

    def test_missing_input_is_one_message(self):
        write_csv(self.folder / "runs.csv", COLUMNS, runs("a", 8, {1: None, 16: 10.0}))
        for path, says in (("absent.csv", "absent.csv"), ("runs.csv", "with a buffer and without")):
            message = self.run_script(2, f"--runs={self.folder / path}").stderr
            self.assertIn(says, message)
            self.assertEqual(len(message.splitlines()), 1)


if __name__ == "__main__":
    unittest.main()
