#!/usr/bin/env python3
"""Pictures of rows in any order, and of more points than have a place each: wide_test.py."""
import json
import math
import os
import random
import re
import shlex
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
from support import ROOT, SKEW, SMOKE, PlotTest, texts_of  # noqa: E402
from plotting import curve, page, pictures  # noqa: E402
from plotting.rows import Row, UsageError  # noqa: E402

H200 = ROOT / "docs/results/2026-11-23-nvidia-h200"
WIDE, OTHERS, VLLM = H200 / "wide.jsonl", H200 / "wide-others.jsonl", H200 / "wide-vllm.jsonl"


def rows_of(file):
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()[1:]]


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


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
        old = {"peer": "cpu 1.0", "levels": "bounded"}  # the one that a peer was proved at
        for told in (old, {"plugin": "/usr/share/lora-bench/python/lora_bench/peers/cpu.py sha256:1"}):
            rows = self.stored(SMOKE)
            for row in rows:
                if row["backend"] == "cpu":
                    row.update(told)
            texts, _ = self.drawn("bars", self.written(rows))
            self.assertEqual([text for text in texts if re.fullmatch("cpu|mutant:none", text)], ["mutant:none", "cpu"])


class CurveOfAllPoints(PlotTest):
    def test_means_and_counts_below_are_those_of_the_rows(self):
        texts, _ = self.drawn("curve", WIDE, OTHERS, "--threshold", "2", "--threshold", "1.5")
        ratios = {}
        for row in rows_of(WIDE) + rows_of(OTHERS):
            ratios.setdefault(row["backend"], []).append(row["floor_ratio"])
        self.assertEqual({backend: len(its) for backend, its in ratios.items()},
                         {"auto": 160, "bgmv": 30, "chunked": 30, "grouped": 30})
        means = ", ".join(f"{backend} {geometric_mean(ratios[backend]):.2f} ({len(ratios[backend])})"
                          for backend in sorted(ratios))
        self.assertIn(f"Geometric mean (of so many of 160 points): {means}", texts)
        for threshold in (2, 1.5):
            within = ", ".join(f"{backend} {sum(ratio <= threshold for ratio in ratios[backend])}"
                               for backend in sorted(ratios))
            self.assertIn(f"At most {threshold}, of 160 points: {within}", texts)
            self.assertIn(str(threshold), texts)
        self.assertIn("A line that ends before 100 %: of the other points that backend has no result", texts)
        self.assertIn("NVIDIA H200 · commit beaa2f1549c4 · linear · bf16 · weights-cold · graph", texts)

    def test_every_panel_has_its_own_points(self):
        texts, _ = self.drawn("curve", WIDE, H200 / "anchors.jsonl", "--value", "time_us")
        for scenario, points in (("anchors", 17), ("auto-wide", 160)):
            self.assertIn(scenario, texts)
            self.assertTrue([text for text in texts if text.startswith(
                f"{scenario}: geometric mean (of so many of {points} points): auto ")])
        self.assertFalse([text for text in texts if text.startswith("A line that ends")])

    def axes_of(self, rows, asked, thresholds=()):
        page.use_style()
        wish = pictures.Wish("floor_ratio", "A title", page.series_style(["a", "b"]), [], asked, list(thresholds))
        return curve.curve(rows, wish).axes

    def rows(self, backend, ratios, **columns):
        common = {"scenario": "s", "cache": "hot", "mode": "graph", "rank": 8, "dtype": "bf16", "backend": backend,
                  **columns}
        return [Row({**common, "case": f"c{i}", "floor_ratio": ratio, "rank": 8 * i}, {}, f"rows:{i}", {})
                for i, ratio in enumerate(ratios)]

    def test_a_line_is_the_sorted_values_over_the_share_of_all_points(self):
        a, b = self.rows("a", [4.0, 1.5, 2.0, 8.0]), self.rows("b", [16.0, 4.0])
        axes, = self.axes_of(a + b, a + b, [3.0])
        drawn = [(list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines]
        self.assertIn(([25, 50, 75, 100], [1.5, 2.0, 4.0, 8.0]), drawn)
        self.assertIn(([25, 50], [4.0, 16.0]), drawn)
        levels = sorted(y[0] for _, y in drawn if y == y[:1] * 2)
        for level, expected in zip(levels, (3.0, 96 ** 0.25, 8.0), strict=True):
            self.assertAlmostEqual(level, expected)
        self.assertEqual(axes.get_yscale(), "log")

    def test_what_failed_is_a_point_and_never_reached(self):
        rows = self.rows("a", [2.0, 3.0, 4.0, 5.0])
        axes, = self.axes_of(rows[:3], rows)
        self.assertIn([25, 50, 75], [list(line.get_xdata()) for line in axes.lines])

    def test_dtypes_are_parted_and_shapes_are_not(self):
        rows = self.rows("a", [2.0, 3.0]) + self.rows("a", [4.0], dtype="fp16")
        self.assertEqual([axes.get_title("left") for axes in self.axes_of(rows, rows)], ["bf16", "fp16"])

    def test_every_line_has_a_colour_and_a_marker_of_its_own(self):
        rows = self.rows("a", [2.0, 3.0]) + self.rows("b", [2.0, 3.0])
        axes, = self.axes_of(rows, rows)
        lines = [line for line in axes.lines if line.get_marker() != "None"]
        self.assertEqual(len({(line.get_color(), line.get_marker()) for line in lines}), 2)

    def test_rows_of_two_machines_are_refused(self):
        self.assertIn("two machines", self.refused("curve", WIDE, H200.with_name("2026-11-22-nvidia-h200-wide") /
                                                   "wide.jsonl"))

    def test_rows_of_peers_without_a_floor_tell_where_to_get_it(self):
        texts, said = self.drawn("curve", WIDE, VLLM)
        self.assertIn("Not drawn: 158 without stream_ratio, 2 FAILED", texts)
        self.assertIn("rows of peers of earlier versions have no floor; `lora-bench report OURS.jsonl THEIRS.jsonl --out "
                      "BOTH.jsonl` lends them ours", said)

    def test_more_cases_than_bars_have_room_for_are_sent_to_the_curve(self):
        self.assertIn("160 cases do not fit in one picture (most 64); choose with --filter, or draw all of them "
                      "sorted, a line a backend: plot.py curve", self.refused("bars", WIDE))

    def test_thresholds_that_make_no_sense(self):
        for kind, threshold, sentence in (
                ("curve", "0", "--threshold 0: a positive number is wanted"),
                ("curve", "inf", "--threshold inf: a positive number"),
                ("curve", "x", "argument --threshold: invalid float value: 'x'"),
                ("bars", "2", "--threshold is of `curve`, which says how many points stay below it, not of `bars`")):
            with self.subTest(threshold):
                self.assertIn(sentence, self.refused(kind, WIDE, "--threshold", threshold))


class MapOfDrawnSteps(PlotTest):
    def test_a_map_that_would_be_mostly_dashes_is_refused_and_told_what_fits(self):
        ranks = len({row["rank"] for row in rows_of(WIDE)})
        tokens = len({row["tokens"] for row in rows_of(WIDE)})
        taken = len({(row["rank"], row["tokens"]) for row in rows_of(WIDE)})
        said = self.refused("heat", WIDE)
        self.assertIn(f"{ranks} of rank by {tokens} of tokens, and only {taken} of these {ranks * tokens} places have a "
                      "row: a map would be mostly dashes; choose a grid with --filter, or draw all points sorted: "
                      "plot.py curve", said)

    def test_half_a_grid_is_drawn_and_less_is_not(self):
        def check(*places):
            rows = [Row(dict(zip(("rank", "tokens"), place)), {}, "rows:1", {}) for place in places]
            pictures.refuse_what_is_no_grid(rows, ("rank", "tokens"))
        check((8, 1), (16, 2), (16, 2))
        check((8, 1), (8, 2), (8, 4), (16, 4))
        with self.assertRaisesRegex(UsageError, "3 of rank by 3 of tokens, and only 4 of these 9 places"):
            check((8, 1), (16, 2), (32, 4), (32, 1))

    def test_a_grid_of_which_most_failed_is_drawn(self):
        page.use_style()
        common = {"scenario": "s", "case": "c", "backend": "a", "cache": "hot", "mode": "graph", "floor_ratio": 2.0}
        grid = {(rank, tokens): Row({**common, "rank": rank, "tokens": tokens}, {}, "rows:1", {})
                for rank in (8, 16, 32) for tokens in (1, 2, 4)}
        passed = [grid[place] for place in ((8, 1), (16, 2), (32, 4))]
        wish = pictures.Wish("floor_ratio", "A title", page.series_style(["a"]), [], list(grid.values()))
        shown = [text.get_text() for text in pictures.heat(passed, wish).axes[0].texts]
        self.assertEqual((shown.count("2.00"), shown.count("–")), (3, 6))


class PictureOfTheDocs(PlotTest):
    """That of docs/kernels.md, of `auto-wide` beside peers on one machine."""

    def setUp(self):
        super().setUp()
        self.page = (ROOT / "docs" / "kernels.md").read_text(encoding="utf-8")
        self.picture = re.search(r"--out docs/(pictures/[\w.-]+\.svg)\n", self.page)[1]
        self.texts = texts_of((ROOT / "docs" / self.picture).read_text(encoding="utf-8"))

    def test_its_figures_are_those_of_the_stored_rows(self):
        floor = {row["case"]: row["floor_us"] for row in rows_of(WIDE)}
        means = []
        for name in ("wide", "wide-sglang-csgmv", "wide-torch-loop", "wide-vllm"):
            rows = [row for row in rows_of(H200 / f"{name}.jsonl") if row["status"] == "PASSED"]
            mean = geometric_mean([row["time_us"] / floor[row["case"]] for row in rows])
            means.append(f"{rows[0]['backend']} {mean:.{1 if mean >= 10 else 2}f} ({len(rows)})")
        self.assertIn(f"Geometric mean (of so many of 160 points): {', '.join(means)}", self.texts)

    def test_it_is_what_its_commands_draw(self):
        tool = os.environ.get("LORA_BENCH_BINARY")
        if not tool:
            self.skipTest("LORA_BENCH_BINARY is not set")
        self.assertIn(f"]({self.picture})", self.page)
        block = re.search(r"```sh\nR=(.*)\nlora-bench (report .*)\nscripts/plot\.py (.*)\n```", self.page)
        report, draw = (shlex.split(block[i].replace("$R", str(ROOT / block[1]))) for i in (2, 3))
        subprocess.run([tool, *report], check=True, capture_output=True, cwd=self.folder)
        texts, _ = self.drawn(draw[0], self.folder / draw[1], *draw[2:-2])
        self.assertEqual(texts, self.texts)


if __name__ == "__main__":
    unittest.main()
