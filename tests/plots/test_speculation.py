"""plots/speculation.py: gains over the recurrent form without drafts, the best number of drafts, and missing input."""

import unittest

from figure_case import FigureCase, write_csv

COLUMNS = ["linear.form", "speculation.drafts", "workload.batch", "status", "output_tokens_per_s"]


def runs(form, drafts, rates):
    return [dict(zip(COLUMNS, (form, drafts, batch, "ok" if rate else "infeasible", rate or "")))
            for batch, rate in rates.items()]


class Speculation(FigureCase):
    script_name = "speculation.py"
    reads_profile = False

    def write(self, rows):
        write_csv(self.folder / "runs.csv", COLUMNS, rows)
        return f"--runs={self.folder / 'runs.csv'}"

    def test_best_drafts_of_the_batches_that_fit(self):
        rows = [*runs("recurrent", 0, {1: 100.0, 64: 1000.0, 128: 1500.0}),
                *runs("recurrent", 2, {1: 200.0, 64: 900.0, 128: None}), *runs("recurrent", 8, {1: 150.0}),
                *runs("buffered", 0, {1: 90.0, 64: 1100.0, 128: 1650.0, 256: 2000.0}),  # 256: nothing to compare with
                *runs("buffered", 8, {1: 250.0, 64: 1300.0, 128: None})]
        lines = self.run_script(0, self.write(rows)).stdout.splitlines()
        self.assertEqual([line.split() for line in lines[1:-1]], [["1", "2", "2.00", "8", "2.50"],
                                                                  ["64", "0", "1.00", "8", "1.30"],
                                                                  ["128", "0", "1.00", "0", "1.10"]])
        self.assert_figure("speculation")

    def test_missing_input_is_one_message(self):
        no_base = self.write([*runs("recurrent", 1, {1: 1.0}), *runs("buffered", 1, {1: 1.0})])
        for argument, says in ((f"--runs={self.folder / 'absent.csv'}", "absent.csv"), (no_base, "in both forms")):
            message = self.run_script(2, argument).stderr
            self.assertIn(says, message)
            self.assertEqual(len(message.splitlines()), 1)


if __name__ == "__main__":
    unittest.main()
