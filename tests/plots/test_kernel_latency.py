"""plots/kernel_latency.py: floors, averages over fills, speedups, and what is left out."""

import unittest
from argparse import Namespace

from figure_case import LAYER, FigureCase
from kernel_latency import Measured
from measured import Roof, mean_us


def recurrent(state, batch, time):
    return {**LAYER, "state_dtype": state, "batch": batch, "time_us": time, "dram_read_bytes": 400, "dram_write_bytes": 100}


def ring(state, batch, fill, flush, time, length=4, records="bf16", tokens=1):
    return {**LAYER, "state_dtype": state, "records": records, "batch": batch, "buffer_length": length, "fill": fill,
            "flush_rows": flush, "tokens": tokens, "time_us": time}


class KernelLatency(FigureCase):
    script_name = "kernel_latency.py"

    def setUp(self):
        super().setUp()
        self.profile("linear_recurrent", [recurrent("fp32", 4, 42), {**recurrent("fp32", 4, 1), "v_heads": 48},
                                          {**recurrent("fp32", 4, 2), "l2": "warm"}])
        # Cycle of four tokens: (10 + 12 + 14 + 20) / 4 = 14 us, fill 1 interpolated.
        cycle = [(0, 0, 10), (2, 0, 14), (3, 4, 20), ("", 1, 15)]
        self.profile("linear_buffered", [ring("fp32", 4, *launch) for launch in cycle]
                     + [ring("split", 4, fill, flush, time / 2) for fill, flush, time in cycle]
                     + [ring("fp32", 4, 0, 0, 1, records="fp32_u"), ring("fp32", 4, 0, 0, 1, length=8)])

    def rows(self, *arguments):
        lines = self.run_script(0, "--length=4", "--tokens=2", *arguments).stdout.splitlines()
        return [line.split() for line in lines if line.split()[0] in ("decode", "verify")], lines

    def test_speedups_of_decode(self):
        rows, lines = self.rows()
        # Split states have no recurrent kernel: theirs is the one of fp32.
        self.assertEqual(rows, [["decode", "fp32", "4", "42.00", "14.00", "3.00x"],
                                ["decode", "split", "4", "42.00", "7.00", "6.00x"]])
        self.assertTrue(lines[0].startswith("left out: verify, of which"))
        self.assert_figure("kernel_latency")

    def test_verify_is_the_mean_over_fills_without_a_flush(self):
        self.profile("linear_verify_stored", [{**recurrent("fp32", 4, 50), "tokens": 2}, {**recurrent("fp32", 4, 9), "tokens": 3}])
        self.profile("linear_verify_buffered",  # fills 0, 1 and 2 leave room for two tokens
                     [ring("fp32", 4, fill, flush, time, tokens=2) for fill, flush, time in ((0, 0, 8), (2, 0, 12), (2, 4, 99))])
        rows, lines = self.rows()
        self.assertEqual(rows[-1], ["verify", "fp32", "4", "50.00", "10.00", "5.00x"])
        self.assertFalse([line for line in lines if "left out" in line])

    def test_an_average_without_all_fills_is_left_out(self):
        self.profile("linear_verify_stored", [{**recurrent(state, 4, 50), "tokens": 2} for state in ("fp32", "bf16")])
        self.profile("linear_verify_buffered", [ring("fp32", 4, fill, 0, 8, tokens=2) for fill in (0, 2)]
                     + [ring("bf16", 4, 0, 0, 8, tokens=2)])
        rows, lines = self.rows()
        self.assertEqual([row[1] for row in rows if row[0] == "verify"], ["fp32"])
        self.assertEqual([line for line in lines if "left out" in line],
                         ["left out: verify, buffered with bf16 state, of which some fills were not measured"])
        self.assertIsNone(mean_us({0: 1.0}, range(2)))

    def test_the_floor_is_that_of_the_bytes(self):
        # 100 bytes read and written at the copy's 2 per us, 300 more read at 4: 100 + 75 us.
        row = {"dram_read_bytes": "400", "dram_write_bytes": "100"}
        self.assertEqual(Roof(self.folder).floor_us(row), 175.0)
        # Written alone: at the copy's rate.
        self.assertEqual(Roof(self.folder).floor_us({"dram_read_bytes": "0", "dram_write_bytes": "100"}), 50.0)
        self.assertIsNone(Roof(self.folder).floor_us({"dram_read_bytes": "", "dram_write_bytes": ""}))

    def test_the_append_probe_is_a_floor_of_decode_with_fp32_states(self):
        arguments = Namespace(k_heads=16, v_heads=32, length=4, tokens=2)
        self.assertEqual(Measured(self.folder, arguments).appended("decode", "fp32"), [])
        # Of a row: 2 MiB read; 32 outputs, 32 u and 16 keys of 256 bytes written. Four rows lie between two and eight.
        row = 2 * 2**20 + 80 * 256
        self.profile("stream_append", [{"bytes": rows * row, "time_us": time, "l2": "cold"}
                                       for rows, time in ((2, 5), (8, 11))])
        measured = Measured(self.folder, arguments)
        self.assertEqual(measured.appended("decode", "fp32"), [(4, 7.0)])
        self.assertEqual(measured.appended("decode", "split") + measured.appended("verify", "fp32"), [])
        arguments.k_heads = 8  # fewer keys than the probe writes
        self.assertEqual(Measured(self.folder, arguments).append_times, {})
        self.rows()
        self.assert_figure("kernel_latency")

    def test_missing_input_is_one_message(self):
        message = self.run_script(2, "--v-heads=7").stderr
        self.assertIn("16/7 heads", message)
        self.assertEqual(len(message.splitlines()), 1)
        (self.folder / "stream_copy.csv").unlink()
        self.assertIn("stream_copy.csv", self.run_script(2).stderr)


if __name__ == "__main__":
    unittest.main()
