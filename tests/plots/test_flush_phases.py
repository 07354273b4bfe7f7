"""plots/flush_phases.py: ratios of the two policies by case, and missing input."""

import unittest

from figure_case import FigureCase, write_csv

QUANTILES = ["p50", "p90", "p95", "p99", "max"]
TIMES = [f"itl_ms_{name}" for name in ["mean", *QUANTILES]]


def runs(axis, value, times_of_policy):
    return [{axis: value, "linear.flush": policy, "status": "ok" if times else "infeasible", **dict(zip(TIMES, times))}
            for policy, times in times_of_policy.items()]


class FlushPhases(FigureCase):
    script_name = "flush_phases.py"
    reads_profile = False

    def write(self, name, axis, rows):
        write_csv(self.folder / name, [axis, "linear.flush", "status", *TIMES], rows)
        return f"--{name}={self.folder / name}"

    def steady(self, aligned=(1.1, 1.0, 1.0, 3.0, 3.0, 3.0)):
        rows = runs("workload.batch", 8, {"aligned": aligned, "staggered": [2.0] * 6})
        return self.write("steady", "workload.batch", rows + runs("workload.batch", 64, {"aligned": [1.0] * 6}))

    def arrivals(self):
        times = {"aligned": [1.0, 1.0, 1.0, 1.0, 1.0, 500.0], "staggered": [1.0, 1.0, 1.0, 1.0, 4.0, 500.0]}
        return self.write("arrivals", "workload", runs("workload", "some_trace", times))

    def test_ratios_of_cases_with_both_policies(self):
        lines = self.run_script(0, self.steady(), self.arrivals()).stdout.splitlines()
        self.assertEqual([line.split() for line in lines[1:-1]],  # no batch 64: nothing to compare with
                         [["batch", "8", "0.550", "0.500", "0.500", "1.500", "1.500", "1.500"],
                          ["some", "trace", "1.000", "1.000", "1.000", "1.000", "0.250", "1.000"]])
        self.assert_figure("flush_phases")

    def test_missing_input_is_one_message(self):
        absent = f"--steady={self.folder / 'absent.csv'}"
        for steady, says in ((absent, "absent.csv"), (self.steady(aligned=()), "aligned and with staggered")):
            message = self.run_script(2, steady, self.arrivals()).stderr
            self.assertIn(says, message)
            self.assertEqual(len(message.splitlines()), 1)


if __name__ == "__main__":
    unittest.main()
