"""plots/roofline.py: shares of the roof, the launches that count, and missing input."""

import unittest

from figure_case import FigureCase, write_csv

COLUMNS = ["form", "state_dtype", "k_heads", "v_heads", "buffer_length", "bytes", "flops", "measured_us"]


def launch(form, megabytes, us, **changes):
    return {"form": form, "state_dtype": "fp32", "k_heads": 16, "v_heads": 32, "bytes": megabytes * 10 ** 6,
            "flops": megabytes * 10 ** 6, "measured_us": us, **changes}


class Roofline(FigureCase):
    script_name = "roofline.py"

    def setUp(self):
        super().setUp()
        # The roof is 4 bytes per us: 100 MB take 25 s at least.
        self.rows = [launch("recurrent", 100, 50e6), launch("recurrent", 100, 100e6), launch("recurrent", 10, 2.5e6),
                     launch("recurrent", 100, 25e6, v_heads=48),
                     launch("buffered", 100, 31.25e6, buffer_length=16), launch("buffered", 100, 25e6, buffer_length=64),
                     {"form": "", "bytes": 5}]
        write_csv(self.folder / "rows.csv", COLUMNS, self.rows)

    def test_shares_of_the_roof(self):
        lines = self.run_script(0, f"--rows={self.folder / 'rows.csv'}").stdout.splitlines()
        self.assertEqual([line.split(",")[0] for line in lines[:2]], ["left out: verify_stored", "left out: verify_buffered"])
        # Of 100 MB: 50 and 25 % with one state; 80 %. The small one, 48 heads and the longer ring do not count.
        self.assertEqual([line.split() for line in lines[4:6]], [["recurrent", "fp32", "2", "37.5%", "50.0%"],
                                                                 ["buffered", "fp32", "1", "80.0%", "80.0%"]])
        self.assert_figure("roofline")

    def test_missing_input_is_one_message(self):
        for arguments, says in (([f"--rows={self.folder / 'absent.csv'}"], "absent.csv"),
                                ([f"--rows={self.folder / 'rows.csv'}", "--v-heads=7"], "16/7 heads")):
            message = self.run_script(2, *arguments).stderr
            self.assertIn(says, message)
            self.assertEqual(len(message.splitlines()), 1)


if __name__ == "__main__":
    unittest.main()
