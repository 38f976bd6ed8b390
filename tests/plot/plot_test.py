#!/usr/bin/env python3
"""Pictures of stored rows: plot_test.py."""
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
from support import ANCHORS, ROOT, SCRIPT, SKEW, SMOKE, PlotTest, short, texts_of  # noqa: E402
from matplotlib.colors import Normalize  # noqa: E402
from plotting import axes, page, panels  # noqa: E402
from plotting.doubts import doubt_about  # noqa: E402
from plotting.rows import Row  # noqa: E402


class WhatIsDrawn(PlotTest):
    def test_bars_show_every_case_backend_and_figure(self):
        texts, _ = self.drawn("bars", ANCHORS)
        rows = [json.loads(line) for line in ANCHORS.read_text().splitlines()][1:]
        for row in rows:
            self.assertIn(row["case"], texts)
            self.assertIn(row["backend"], texts)
            self.assertIn(short(row["floor_ratio"]), texts)
        self.assertIn("time / one pass over all bytes", texts)
        self.assertIn("one pass over all bytes", texts)
        self.assertTrue(any(text.startswith("NVIDIA H200 · commit f214d58e2f2e") for text in texts))
        self.assertEqual(texts.count("–"), 1, "paired has no row of prefill8192")

    def test_times_against_tokens_with_the_floor_a_rank_a_panel(self):
        texts, _ = self.drawn("tokens", SMOKE)
        for word in ("tokens in the step", "time of a launch (µs)", "cpu", "mutant:none", "floor", "rank 8", "rank 16",
                     "1", "8", "32", "machine not named (CSV) · in 512, out 512+128+128 · linear · bf16 · "
                     "weights-cold · host"):
            self.assertIn(word, texts)

    def test_heat_has_a_map_a_backend(self):
        texts, _ = self.drawn("heat", SMOKE)
        for word in ("tokens in the step", "rank", "time / floor", "cpu", "mutant:none"):
            self.assertIn(word, texts)
        for row in self.stored(SMOKE):
            if row["status"] == "PASSED":
                self.assertIn(short(row["floor_ratio"]), texts)

    def test_heat_shows_any_column(self):
        texts, _ = self.drawn("heat", SMOKE, "--value", "bandwidth_GBps", "--filter", "backend=cpu")
        self.assertIn("bandwidth (GB/s)", texts)
        self.assertIn("Bandwidth by rank and tokens", texts)

    def test_a_map_of_many_columns_turns_its_figures(self):
        for turned in (0, axes.turn_of_columns(["1.83"], columns=40, across=1)):
            figure = page.new_page(4, "", "", [])
            axes.draw_map(figure.subplots(), [[1.83] * 40], Normalize(1, 2), turned)
            self.assertEqual(page.misplaced_texts(figure) == [], turned == 90)

    def test_skew_has_the_laws_in_the_order_of_active_adapters(self):
        texts, _ = self.drawn("skew", self.changed(SKEW, lambda row: None, backwards=True))
        laws = [text for text in texts if text in {row["skew"] for row in self.stored(SKEW)}]
        self.assertEqual(laws, ["identical", "one-vs-rest", "hot:0.9", "zipf:2", "zipf:1.5", "zipf:1", "uniform",
                                "blocks", "distinct"])
        for word in ("time of a launch (µs)", "cpu", "mutant:none", "floor",
                     "law by which the batch chooses adapters, and how many it touches"):
            self.assertIn(word, texts)

    def test_filters_keep_the_rows_for_which_they_hold(self):
        for expression, kept in (("tokens<8", {"1"}), ("tokens <= 8", {"1", "8"}), ("tokens>8", {"32"}),
                                 ("tokens>=8", {"8", "32"}), ("tokens!=8", {"1", "32"}), ("tokens=8", {"8"}),
                                 ("case=decode?-rank*", {"1", "8"}), ("case!=decode?-rank*", {"32"}),
                                 ("batch.decode=32", {"32"}), ("tags=smoke", {"1", "8", "32"})):
            with self.subTest(expression):
                texts, _ = self.drawn("bars", SMOKE, "--filter", expression, "--filter", "rank=8")
                self.assertEqual({text for text in texts if text.startswith("decode")},
                                 {f"decode{tokens}-rank8" for tokens in kept})

    def test_backends_with_floors_of_their_own_have_a_line_each(self):
        def halve(row):
            if row["backend"] == "cpu" and row["floor_us"]:
                row.update(floor_us=float(row["floor_us"]) / 2, floor_ratio=float(row["floor_ratio"]) * 2)
        texts, _ = self.drawn("tokens", self.changed(SMOKE, halve))
        self.assertTrue({"floor of cpu", "floor of mutant:none"} <= set(texts))
        self.assertNotIn("floor", texts)

    def test_skew_shows_the_floor_ratio_too(self):
        texts, _ = self.drawn("skew", SKEW, "--value", "floor_ratio", "--title", "A title of mine")
        self.assertIn("time / floor", texts)
        self.assertIn("A title of mine", texts)

    def test_every_kind_is_written_in_both_forms(self):
        for kind, file in (("bars", ANCHORS), ("tokens", SMOKE), ("heat", SMOKE), ("skew", SKEW)):
            with self.subTest(kind):
                svg, png = self.folder / f"{kind}.svg", self.folder / f"{kind}.png"
                self.assertEqual(self.run_plot(kind, file, "--out", svg, "--out", png)[0], 0)
                self.assertGreater(len(texts_of(svg.read_text(encoding="utf-8"))), 10)
                self.assertTrue(png.read_bytes().startswith(b"\x89PNG"))
                self.assertGreater(png.stat().st_size, 10_000)

    def test_the_same_rows_give_the_same_files(self):
        names = ["one.svg", "one.png", "two.svg", "two.png"]
        for first, second in (names[:2], names[2:]):
            self.run_plot("bars", ANCHORS, "--out", self.folder / first, "--out", self.folder / second)
        one, png, two, other_png = ((self.folder / name).read_bytes() for name in names)
        self.assertEqual(one, two)
        self.assertEqual(png, other_png)
        self.assertNotIn(b"<dc:date>", one)
        self.assertLess(len(one), 150_000)

    def test_the_picture_of_the_readme_is_what_its_commands_draw(self):
        tool = os.environ.get("LORA_BENCH_BINARY")
        if not tool:
            self.skipTest("LORA_BENCH_BINARY is not set")
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        commands = re.search(r"^lora-bench (report .* --out ([\w.-]+\.jsonl))\n"
                             r"scripts/plot.py (\w+) \2 (.*) --out (docs/pictures/[\w.-]+\.svg)$", readme, re.MULTILINE)
        self.assertIsNotNone(commands)
        report, rows, kind, settings, picture = commands.groups()
        self.assertIn(f"]({picture})", readme)
        merge = [self.folder / rows if argument == rows else argument for argument in shlex.split(report)]
        subprocess.run([tool, *merge], cwd=ROOT, check=True, capture_output=True)
        self.assertEqual(self.drawn(kind, self.folder / rows, *shlex.split(settings))[0],
                         texts_of((ROOT / picture).read_text(encoding="utf-8")))

    def test_both_forms_of_rows_that_the_tool_writes_now_are_read(self):
        tool = os.environ.get("LORA_BENCH_BINARY")
        if not tool:
            self.skipTest("LORA_BENCH_BINARY is not set")
        files = [self.folder / "rows.jsonl", self.folder / "rows.csv"]
        command = [tool, "run", "smoke", "--backends", "cpu", "--repeat", "2", "--filter", "rank=8", "--quiet"]
        ran = subprocess.run([*command, "--out", files[0], "--out", files[1]], capture_output=True, text=True)
        # 4: on a busy machine a row may be INVALID.
        self.assertIn(ran.returncode, (0, 4), ran.stderr)
        pictures = [self.drawn("tokens", file)[0] for file in files]
        self.assertIn("cpu", pictures[0])
        from_csv, from_jsonl = ({text for text in texts if "weights-cold" not in text} for texts in pictures[::-1])
        self.assertEqual(from_csv, from_jsonl)


class WhatIsNoResult(PlotTest):
    def test_a_failed_row_is_said_and_not_drawn(self):
        texts, said = self.drawn("bars", SMOKE)
        self.assertRegex(said, r"not drawn: 2 FAILED, the first: decode32-rank8 on mutant:row-offset-wraps "
                               r"\(.*csv:16\)")
        self.assertIn("Not drawn: 2 FAILED", texts)
        self.assertEqual(texts.count("–"), 2)
        figures = [text for text in texts if re.fullmatch(r"\d+\.?\d*", text)]
        passed = [short(row["floor_ratio"]) for row in self.stored(SMOKE) if row["status"] == "PASSED"]
        self.assertEqual(len(passed), 16)
        for figure in passed:
            self.assertIn(figure, figures)

    def test_a_backend_without_a_result_does_not_appear(self):
        def fail(row):
            if row["backend"] == "mutant:none":
                row["status"] = "INVALID"
        for kind, file in (("bars", SMOKE), ("tokens", SMOKE), ("heat", SMOKE), ("skew", SKEW)):
            with self.subTest(kind):
                texts, said = self.drawn(kind, self.changed(file, fail))
                self.assertFalse([text for text in texts if "mutant:none" in text])
                self.assertRegex(said, "INVALID, the first: .* on mutant:none ")

    def test_what_passed_without_proof_or_time_is_not_drawn(self):
        def spoil(row):
            row["levels"] = "" if row["case"] == "decode1-rank8" else row["levels"]
            row["floor_ratio"] = {"decode8-rank8": "", "decode8-rank16": "-1"}.get(row["case"], row["floor_ratio"])
        texts, said = self.drawn("bars", self.changed(SMOKE, spoil))
        self.assertFalse({"decode1-rank8", "decode8-rank8", "decode8-rank16"} & set(texts))
        for why in ("PASSED without a level that was proved", "without floor_ratio",
                    "floor_ratio is not time_us over floor_us"):
            self.assertIn(why, said)

    def test_a_row_that_was_changed_after_it_was_written_is_not_drawn(self):
        context, first, second, third = ANCHORS.read_text(encoding="utf-8").splitlines()[:4]
        sealed = [line[:-1] + f',"seal":"{hashlib.sha256(line.encode()).hexdigest()[:16]}"}}'
                  for line in (first, second)]
        file = self.folder / "sealed.jsonl"
        file.write_text("\n".join([context[:-1] + ',"sealed":true}', sealed[0],
                                   sealed[1].replace('"warning":"', '"warning":"x'), third, ""]), encoding="utf-8")
        _, said = self.drawn("bars", file, "--value", "stream_ratio")
        self.assertRegex(said, "not drawn: 2 changed after it was written, the first: .*sealed.jsonl:[34]")

    def test_repeats_are_drawn_as_their_median(self):
        first = self.stored(SMOKE)[0]
        repeats = self.written([{**first, "repetition": i, "floor_ratio": ratio,
                                 "floor_us": float(first["time_us"]) / ratio}
                                for i, ratio in enumerate((4.4, 2.2, 3.3))])
        texts, _ = self.drawn("bars", repeats)
        self.assertIn("3.30", texts)
        self.assertFalse({"2.20", "4.40"} & set(texts))

    def test_a_repeat_that_is_no_result_stands_for_all(self):
        first = self.stored(SMOKE)[0]
        repeats = self.written([first, {**first, "repetition": "1", "status": "FAILED"}])
        self.assertIn("1 beside a repeat that is no result, 1 FAILED", self.refused("bars", repeats))

    def test_a_repeat_of_another_case_is_no_repeat(self):
        first = self.stored(SMOKE)[0]
        repeats = self.written([first, {**first, "repetition": "1", "tokens": "2", "tokens_per_s": ""}])
        self.assertIn("1 another case of the same name: tokens '1' and '2'", self.refused("bars", repeats))

    def test_rows_in_doubt_are_said_in_the_picture(self):
        texts, _ = self.drawn("bars", self.changed(SMOKE, lambda row: row.update(warning="throttled: sw_power_cap")))
        self.assertIn("16 of 16 measured in doubt, the first: throttled: sw_power_cap", texts)

    def test_what_changes_along_a_line_is_said(self):
        texts, _ = self.drawn("tokens", SMOKE, "--filter", "backend=cpu")
        self.assertIn("Along a line change as well: active (1, 4, 7)", texts)


class WhatIsRefused(PlotTest):
    def test_command_lines_that_make_no_sense(self):
        for arguments, sentence in (
                (["pie", ANCHORS], "invalid choice: 'pie'"),
                (["bars"], "required: file"),
                (["bars", ANCHORS, "--out", "a.jpg"], "--out a.jpg: pictures are .png or .svg"),
                (["bars", ANCHORS, "--value", "floor_rato"], "--value: unknown column 'floor_rato'; did you mean "
                                                             "'floor_ratio'?"),
                (["bars", ANCHORS, "--value", "layer"], "anchors.jsonl:6: column 'layer' is 'gate_up', no number"),
                (["bars", ANCHORS, "--filter", "rank"], "--filter 'rank': no operator"),
                (["bars", ANCHORS, "--filter", "rnak=16"], "unknown column 'rnak'; did you mean 'rank'?"),
                (["bars", ANCHORS, "--filter", "layer>qkv"], "> compares with a number"),
                (["bars", ANCHORS, "--filter", "rank=17"], "--filter 'rank=17': no row is left to draw")):
            with self.subTest(arguments):
                self.assertIn(sentence, self.refused(*arguments))

    def test_files_that_are_no_results(self):
        def written(name, text):
            (self.folder / name).write_text(text, encoding="utf-8")
            return self.folder / name
        context, row = ANCHORS.read_text(encoding="utf-8").splitlines()[:2]
        head = SMOKE.read_text(encoding="utf-8").splitlines()[0]
        for file, sentence in (
                (self.folder / "none.csv", "none.csv: cannot be read: No such file"),
                (written("a.txt", ""), "a.txt: not a .jsonl or .csv file"),
                (written("empty.jsonl", ""), "empty.jsonl: holds no row"),
                (written("context.jsonl", context + "\n"), "context.jsonl: holds no row"),
                (written("headless.jsonl", row + "\n"), "headless.jsonl:1: a row before any context"),
                (written("broken.jsonl", f"{context}\n{{\n{row}\n"), "broken.jsonl:2: no line of a results file"),
                (written("twice.jsonl", context + "\n" + row.replace("{", '{"status":"FAILED",', 1) + "\n"),
                 "twice.jsonl:2: no line of a results file"),
                (written("schema.jsonl", context.replace('"schema":1', '"schema":3')), "schema.jsonl:1: schema 3"),
                (written("list.jsonl", "[]\n"), "list.jsonl:1: no line of a results file"),
                (written("point.jsonl", f'{context}\n{{"kind":"row","point":5}}\n'), "point.jsonl:2: no line of a"),
                (written("header.csv", head + "\n"), "header.csv: holds no row"),
                (written("short.csv", head + "\nsmoke,a\n"), "short.csv:2: more or fewer cells than the header"),
                (written("columns.csv", "case,backend\na,cpu\n"), "columns.csv:2: no column 'scenario'; give a file as "
                                                                   "`lora-bench run --out` writes it")):
            with self.subTest(file.name):
                self.assertIn(sentence, self.refused("bars", file))

    def test_a_last_line_cut_in_the_middle_is_dropped_and_said(self):
        lines = ANCHORS.read_text(encoding="utf-8").splitlines(keepends=True)
        cut = self.folder / "cut.jsonl"
        cut.write_text("".join(lines[:5]) + lines[5][:40], encoding="utf-8")
        texts, said = self.drawn("bars", cut)
        self.assertIn("cut.jsonl:6: last line is cut in the middle; dropped", said)
        self.assertIn(json.loads(lines[1])["case"], texts)

    def test_two_machines_in_one_picture(self):
        other = self.folder / "other.jsonl"
        other.write_text(ANCHORS.read_text(encoding="utf-8").replace('"NVIDIA H200"', '"NVIDIA L4"'), encoding="utf-8")
        self.assertRegex(self.refused("bars", ANCHORS, other),
                         r"anchors\.jsonl:2 and .*other\.jsonl:2: two machines \('NVIDIA H200' and 'NVIDIA L4'\)")

    def test_one_measurement_twice(self):
        self.assertRegex(self.refused("bars", ANCHORS, ANCHORS),
                         r"anchors\.jsonl:6 and .*anchors\.jsonl:6: the same measurement twice, decode1-gateup-r16 on ")

    def test_two_cache_modes_at_one_place(self):
        rows = self.changed(SMOKE, lambda row: row.update(cache="hot", rotation_sets="1", rotated_bytes="0"), "hot.csv")
        self.assertRegex(self.refused("bars", SMOKE, rows),
                         "with another cache, .*--filter cache=weights-cold or cache=hot")

    def test_no_tokens_on_a_logarithmic_axis(self):
        rows = self.changed(SMOKE, lambda row: row.update(tokens="0", tokens_per_s="") if row["case"] == "decode1-rank8" else None)
        self.assertIn("changed.csv:2: decode1-rank8 on cpu has no tokens", self.refused("tokens", rows))
        self.drawn("tokens", rows, "--filter", "tokens>0")

    def test_more_panels_than_a_picture_holds(self):
        def many(row):
            row["layer"] = row["case"] + row["backend"]
        self.assertRegex(self.refused("tokens", self.changed(SMOKE, many)),
                         "16 panels do not fit in one picture .*--filter KEY=VALUE of layer: ")

    def test_a_picture_that_cannot_be_written(self):
        out = self.folder / "no-such-folder" / "a.svg"
        self.assertIn("cannot be written: No such file", self.refused("bars", ANCHORS, "--out", out, code=5))

    def test_without_matplotlib_it_says_what_to_install(self):
        (self.folder / "matplotlib.py").write_text("raise ImportError('no matplotlib')\n", encoding="utf-8")
        result = subprocess.run([sys.executable, SCRIPT, "bars", ANCHORS, "--out", self.folder / "a.svg"], text=True,
                                capture_output=True, env={**os.environ, "PYTHONPATH": str(self.folder),
                                                          "PYTHONDONTWRITEBYTECODE": "1"})
        self.assertEqual(result.returncode, 5)
        self.assertIn(f"{sys.executable} -m pip install -r {SCRIPT.with_name('requirements.txt')}, or for the Python "
                      "of Debian and Ubuntu apt-get install python3-matplotlib", result.stderr)
        self.assertNotIn("Traceback", result.stderr)


class Parts(unittest.TestCase):
    def test_a_row_that_contradicts_itself_is_doubted_as_lora_bench_does(self):
        golden = ROOT / "tests" / "golden"
        stored = json.loads((golden / "rows.jsonl").read_text(encoding="utf-8").splitlines()[1])
        for each in json.loads((golden / "doubts.json").read_text(encoding="utf-8")):
            with self.subTest(each["edit"]):
                self.assertEqual(doubt_about(Row({**stored, **each["edit"]}, {}, "rows.jsonl:2", {})), each["doubt"])

    def rows(self, **columns):
        """A row a place of the lists."""
        common = {"scenario": "s", "case": "c", "cache": "hot", "mode": "graph"}
        return [Row({**common, **dict(zip(columns, values))}, {}, f"rows:{i}", {})
                for i, values in enumerate(zip(*columns.values()), start=1)]

    def test_texts_on_one_another_or_beyond_the_page_are_found(self):
        page.use_style()
        figure = page.new_page(2, "A title", "", [])
        self.assertEqual(page.misplaced_texts(figure), [])
        figure.text(0.5, 0.5, "one")
        figure.text(0.501, 0.5, "other")
        figure.text(0.99, 0.2, "too far to the right")
        self.assertEqual(page.misplaced_texts(figure), ["'too far to the right' reaches beyond the page",
                                                        "'one' and 'other' lie on one another"])

    def test_a_narrow_logarithmic_axis_has_figures_too(self):
        page.use_style()
        axis = page.new_page(2, "A title", "", []).subplots().yaxis
        axes.set_ticks(axis, 130, 172, logarithmic=True)
        self.assertGreaterEqual(len(axis.get_major_locator()()), 2)

    def test_layers_are_parted_and_slots_that_go_along_are_not(self):
        rows = self.rows(backend=["a"] * 4, layer=["qkv", "qkv", "o", "o"], tokens=[1, 8, 1, 8], slots=[1, 4, 1, 4])
        keys, found = panels.panels(rows, ("backend", "tokens"))
        self.assertEqual(keys, ["layer"])
        self.assertEqual([len(group) for group in found.values()], [2, 2])
        self.assertEqual(panels.going_along(found, ("backend", "tokens")), ["slots (1, 4)"])

    def test_divisions_of_a_layer_are_parted_and_another_overlap_or_tuning_is_told(self):
        rows = self.rows(backend=["a"] * 4, layer=["qkv"] * 4, tokens=[1, 8, 16, 32], tp=[1, 1, 2, 2],
                         fully_sharded=[False, False, False, True], overlap=["fused", "serial", "serial", "serial"],
                         tuning=["", "split=4", "", ""])
        keys, found = panels.panels(rows, ("backend", "tokens"))
        self.assertEqual(keys, ["tp", "fully_sharded"])
        self.assertEqual([len(group) for group in found.values()], [2, 1, 1])
        self.assertEqual(panels.going_along(found, ("backend", "tokens")),
                         ["overlap (fused, serial)", "tuning (none, split=4)"])
        self.assertEqual(panels.shared_settings(rows[:2])[-4:], ["tp 1", "fully_sharded false", "hot", "graph"])

    def test_slots_part_rows_that_fall_on_one_place(self):
        rows = self.rows(backend=["a"] * 4, tokens=[1, 8, 1, 8], slots=[1, 1, 4, 4])
        keys, found = panels.panels(rows, ("backend", "tokens"))
        self.assertEqual((keys, list(found)), (["slots"], [("1",), ("4",)]))

    def test_every_backend_has_a_look_of_its_own(self):
        looks = page.series_style([f"backend{i}" for i in range(24)])
        self.assertEqual(len({(look["color"], look["hatch"]) for look in looks.values()}), 24)
        self.assertEqual(len({(look["color"], look["marker"]) for look in looks.values()}), 24)


if __name__ == "__main__":
    unittest.main()
