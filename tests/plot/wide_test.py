#!/usr/bin/env python3
"""Pictures of rows in any order, and of more points than have a place each: wide_test.py."""
import random
import re
import sys
import unittest

sys.dont_write_bytecode = True
from support import SKEW, SMOKE, PlotTest  # noqa: E402


class OrderOfRows(PlotTest):
    def test_rows_in_any_order_give_the_same_picture(self):
        for kind, file in (("bars", SMOKE), ("tokens", SMOKE), ("heat", SMOKE), ("skew", SKEW)):
            with self.subTest(kind):
                pictures = []
                for seed in (None, 1, 2):
                    rows = self.stored(file)
                    if seed is not None:
                        random.Random(seed).shuffle(rows)
                    out = self.folder / f"{kind}{seed}.svg"
                    code, said = self.run_plot(kind, self.written(rows), "--out", out)
                    self.assertEqual(code, 0, said)
                    pictures.append(out.read_bytes())
                self.assertEqual(pictures, pictures[:1] * 3)

    def test_cases_stand_by_their_names_and_numbers_in_them_as_numbers(self):
        texts, _ = self.drawn("bars", self.written(self.stored(SMOKE)[::-1]))
        self.assertEqual([text for text in texts if text.startswith("decode")],
                         ["decode1-rank8", "decode1-rank16", "decode8-rank8", "decode8-rank16", "decode32-rank8",
                          "decode32-rank16"])

    def test_peers_stand_behind_backends_of_ours(self):
        rows = self.stored(SMOKE)
        for row in rows:
            row["peer"] = "cpu 1.0" if row["backend"] == "cpu" else ""
        texts, _ = self.drawn("bars", self.written(rows))
        self.assertEqual([text for text in texts if re.fullmatch("cpu|mutant:none", text)], ["mutant:none", "cpu"])


if __name__ == "__main__":
    unittest.main()
