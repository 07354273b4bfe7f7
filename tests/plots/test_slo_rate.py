"""plots/slo_rate.py: the rate up to which objectives are kept, the first unstable one, and missing input."""

import unittest

from figure_case import FigureCase, write_csv

COLUMNS = ["linear.form", "workload.rate", "status", "goodput_per_s", "slo_attainment", "stability", "ttft_ms_p99", "tpot_ms_p99"]


def runs(form, cases):
    return [dict(zip(COLUMNS, (form, rate, "ok", "1.5", attainment, stability, "80", "")))
            for rate, attainment, stability in cases]


class SloRate(FigureCase):
    script_name = "slo_rate.py"
    reads_profile = False

    def write(self, rows):
        write_csv(self.folder / "runs.csv", COLUMNS, rows)
        return f"--runs={self.folder / 'runs.csv'}"

    def verdicts(self, *arguments):
        rows = [*runs("buffered", [("10 /s", "0.97", "stable"), ("9 /s", "0.995", "stable"), ("20 /s", "0.999", "unstable")]),
                *runs("recurrent", [("9 /s", "0.9", "too_short")])]
        return self.run_script(0, self.write(rows), *arguments).stdout.splitlines()[-3:-1]

    def test_the_first_rate_that_misses_ends_it(self):  # 20 /s meets them again: not after 10 /s has not
        self.assertEqual(self.verdicts(), ["buffered: 99 % of the requests meet the objectives up to 9 /s; unstable from 20 /s",
                                           "recurrent: 99 % of the requests meet the objectives at no rate from 9 /s on"])
        self.assert_figure("slo_rate")

    def test_another_share(self):
        self.assertIn("95 % of the requests meet the objectives up to 20 /s", self.verdicts("--attainment=0.95")[0])

    def test_missing_input_is_one_message(self):
        for argument, says in ((f"--runs={self.folder / 'absent.csv'}", "absent.csv"),
                               (self.write(runs("buffered", [("9 /s", "", "stable")])), "slo"),
                               (self.write(runs("buffered", [("9 /min", "1", "stable")])), "per second")):
            message = self.run_script(2, argument).stderr
            self.assertIn(says, message)
            self.assertEqual(len(message.splitlines()), 1)


if __name__ == "__main__":
    unittest.main()
