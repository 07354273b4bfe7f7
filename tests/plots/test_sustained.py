"""plots/sustained.py: rates and clocks of the begin and the end, products beside a table, and missing input."""

import unittest

from figure_case import FigureCase, write_csv

LOADS = [("chain", 64), ("1000x1000", 1000)]


class Sustained(FigureCase):
    script_name = "sustained.py"
    reads_profile = False

    def slices(self, load, rows):
        """rows: (start_ms, time_us, tflops, sm_mhz)."""
        columns = ["start_ms", "time_us", "tflops", "sm_mhz"]
        return [{"load": load, **dict(zip(columns, row))} for row in rows]

    def write(self, slices):
        write_csv(self.folder / "sustained_loads.csv", ["load", "name", "m", "data", "before"],
                  [{"load": i, "name": name, "m": m, "data": "normal", "before": "idle"} for i, (name, m) in enumerate(LOADS)])
        write_csv(self.folder / "sustained.csv", ["load", "start_ms", "time_us", "tflops", "sm_mhz"], slices)
        write_csv(self.folder / "sustained_clocks.csv", ["load", "at_ms", "sm_mhz", "power_w", "clock_limit"],
                  [{"load": 0, "at_ms": at, "sm_mhz": 1700, "power_w": power, "clock_limit": limit}
                   for at, power, limit in ((-5, 100, "none"), (7, 600, "none"), (8, 700, "power"))])
        write_csv(self.folder / "sustained_bursts.csv", ["m", "n", "k", "time_us", "sm_mhz"],
                  [{"m": 1000, "n": 1000, "k": 1000, "time_us": time, "sm_mhz": 1980} for time in (2.0, 9.0, 2.5)])

    def both(self):
        # The chain: 800 for 1 ms; at its end 600 for 1 ms and 300 for 2 ms: 1200 / 3 = 400.
        copies = [(-9, 1000, "", 1980)]
        chain = [*copies, (0, 1000, 800, 1980), (6, 1000, 600, 1800), (8, 2000, 300, 1500)]
        # 2e9 FLOPs: 4 us at 500 TFLOP/s, 5 us at 400.
        product = [(0, 1000, 500, 1980), (10, 1000, 400, 1700)]
        self.write(self.slices(0, chain) + self.slices(1, product))

    def test_begin_and_end_of_loads_and_products(self):
        self.both()
        write_csv(self.folder / "table.csv", ["gemm_dtype", "m", "n", "k", "latency"],
                  [{"gemm_dtype": kind, "m": 1000, "n": 1000, "k": 1000, "latency": ms}
                   for kind, ms in (("fp8", 0.001), ("bfloat16", 0.003))])
        lines = self.run_script(0, str(self.folder), f"--table={self.folder / 'table.csv'}").stdout.splitlines()
        self.assertEqual(lines[2].split(),
                         ["chain", "m=64", "800", "400", "0.500", "1980", "1650", "650", "W", "1/2"])
        self.assertEqual(lines[-2].split(), "1000 x 1000 x 1000 2.5 4.0 5.0 3.0".split())
        self.assert_figure("sustained")

    def test_missing_input_is_one_message(self):
        for write, says in ((lambda: None, "sustained_loads.csv"), (lambda: self.write([]), "no slices")):
            write()
            message = self.run_script(2, str(self.folder)).stderr
            self.assertIn(says, message)
            self.assertEqual(len(message.splitlines()), 1)


if __name__ == "__main__":
    unittest.main()
