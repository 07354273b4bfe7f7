"""plots/capacity.py: engines by their pools, gains, and missing input."""

import json
import unittest

from figure_case import FigureCase


def row(engine, pools, form, drafts, requests, slots=1, tokens=2048):
    return {"model": "m", "device": "gpu", "engine": engine, "pools": pools, "form": form, "drafts": drafts,
            "slots_per_request": slots, "tokens_per_request": tokens, "memory_requests": requests}


def rows(slots, tokens=2048):
    return [*(row("sglang", "split", form, drafts, requests, slots, tokens)
              for form, drafts, requests in (("recurrent", 0, 500), ("buffered", 0, 450), ("verify_stored", 3, 100),
                                             ("verify_buffered", 3, 450))),
            row("vllm", "paged", "verify_stored", 3, 100, slots, tokens),
            row("vllm", "paged", "verify_buffered", 3, 250, slots, tokens)]


class Capacity(FigureCase):
    script_name = "capacity.py"
    reads_profile = False

    def write(self, name, alternatives):
        path = self.folder / name
        path.write_text(json.dumps({"alternatives": alternatives}), encoding="utf-8")
        return path

    def test_gains_by_engine(self):
        files = [self.write(f"q{q}.json", rows(q)) for q in (1, 3)]
        lines = [line.split() for line in self.run_script(0, *map(str, files)).stdout.splitlines()[1:-1]]
        self.assertEqual(lines, [["sglang,", "q", "=", "1", "0", "500", "450", "0.90x"],
                                 ["sglang,", "q", "=", "1", "3", "100", "450", "4.50x"],
                                 ["sglang,", "q", "=", "3", "0", "500", "450", "0.90x"],
                                 ["sglang,", "q", "=", "3", "3", "100", "450", "4.50x"],
                                 ["vllm", "3", "100", "250", "2.50x"]])  # once, though both files have it
        self.assert_figure("capacity")

    def test_missing_input_is_one_message(self):
        good = self.write("good.json", rows(1))
        single = self.folder / "single.json"
        single.write_text("{}", encoding="utf-8")
        for arguments, says in (([self.folder / "absent.json"], "absent.json"), ([single], "--compare"),
                                ([good, self.write("long.json", rows(1, tokens=4096))], "one model, device and length")):
            message = self.run_script(2, *map(str, arguments)).stderr
            self.assertIn(says, message)
            self.assertEqual(len(message.splitlines()), 1)


if __name__ == "__main__":
    unittest.main()
