"""The module lora_bench as a script uses it, on the program that LORA_BENCH_BINARY names."""

import ast
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "python"))

import lora_bench  # noqa: E402
from lora_bench import _interface, _program  # noqa: E402

SMALL = {"layer": {"in": 64, "out": [64, 32]}, "batch": {"decode": 4},
         "adapters": {"slots": 4, "rank": 8}}


class InCache(unittest.TestCase):
    """What a case writes goes into a cache folder of the test's own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        before = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(before)))
        os.environ["XDG_CACHE_HOME"] = str(self.folder / "cache")


class Running(InCache):
    def test_rows_are_those_of_the_results_file(self):
        file = self.folder / "rows.jsonl"
        rows = lora_bench.run("smoke", backends="cpu", no_time=True, out=file)
        self.assertEqual(rows, lora_bench.read(file))
        self.assertEqual([row["status"] for row in rows], ["PASSED"] * 6)
        self.assertEqual(rows.exit_code, 0)
        self.assertEqual(rows.context["kind"], "context")
        self.assertIn("decode32-rank16", rows.table)
        self.assertIn("6 PASSED", rows.summary)

    def test_a_row_that_failed_raises_only_where_it_is_asked_to(self):
        wrong = {"backends": ["cpu", "mutant:scale-twice"], "no_time": True, "case": "decode8-*"}
        rows = lora_bench.run("smoke", **wrong)
        self.assertEqual(rows.exit_code, 2)
        self.assertEqual([row["status"] for row in rows], ["PASSED", "FAILED"] * 2)
        with self.assertRaises(lora_bench.NotPassed) as caught:
            lora_bench.run("smoke", must_pass=True, **wrong)
        self.assertEqual(caught.exception.exit_code, 2)
        self.assertEqual(len(caught.exception.rows), 4)
        self.assertIn("2 FAILED", str(caught.exception))

    def test_options_are_those_of_the_command_line(self):
        rows = lora_bench.run("smoke", backends="cpu", no_time=True, repeat=2,
                              filter=["rank=16", "tokens<9"], set={"adapters.rank": 16, "seed": 7})
        self.assertEqual({row["case"] for row in rows}, {"decode1", "decode8"})
        self.assertEqual({row["seed"] for row in rows}, {7})
        self.assertEqual([row["repetition"] for row in rows], [0, 0, 1, 1])

    def test_words_of_options(self):
        self.assertEqual(
            _program.words_of({"no_time": True, "quiet": False, "tuning": None, "repeat": 3,
                               "set": {"add_inputs": False, "layer.out": [8, 16]}, "case": ["a", "b"],
                               "out": pathlib.Path("f.csv")}),
            ["--no-time", "--repeat=3", "--set=add_inputs=false", "--set=layer.out=[8, 16]",
             "--case=a", "--case=b", "--out=f.csv"])

    def test_verify_proves_more_and_times_nothing(self):
        rows = lora_bench.verify(SMALL, backends="cpu")
        self.assertIn("relations", rows[0]["levels"])
        self.assertIsNone(rows[0]["time_us"])
        self.assertNotIn("relations", lora_bench.verify(SMALL, backends="cpu", quick=True)[0]["levels"])

    def test_what_makes_no_sense_is_told_in_the_words_of_the_program(self):
        for call, told in (
                (lambda: lora_bench.run("nosuch"), "there is no scenario 'nosuch'"),
                (lambda: lora_bench.run("smoke", wrap=1), "unknown option '--wrap'"),
                (lambda: lora_bench.run("smoke", backends="cpp"), "unknown backend 'cpp'"),
                (lambda: lora_bench.run(SMALL, set={"adapters.rnak": 1}), "'adapters.rank'"),
                (lambda: lora_bench.run({"layer": {"in": 4}}), "'layer.out' is missing"),
                (lambda: lora_bench.check("no.safetensors", "no.safetensors"), "no.safetensors")):
            with self.subTest(told), self.assertRaises(lora_bench.UsageError) as caught:
                call()
            self.assertEqual(caught.exception.exit_code, 1)
            self.assertIn(told, str(caught.exception))

    def test_what_the_machine_refuses_is_another_error(self):
        with self.assertRaises(lora_bench.MachineError) as caught:
            lora_bench.run("smoke", backends="cpu", no_time=True, out="/proc/no/rows.csv")
        self.assertEqual(caught.exception.exit_code, 5)
        self.assertIn("/proc/no", str(caught.exception))

    def test_a_program_that_is_not_there_is_said(self):
        os.environ["LORA_BENCH_BINARY"] = "/no/such/program"
        with self.assertRaisesRegex(lora_bench.MachineError, "/no/such/program"):
            lora_bench.run("smoke")
        del os.environ["LORA_BENCH_BINARY"]
        os.environ["PATH"] = str(self.folder)
        with self.assertRaisesRegex(lora_bench.MachineError, "name it by LORA_BENCH_BINARY"):
            lora_bench.run("smoke")

    def test_a_program_that_dies_is_no_result(self):
        program = self.folder / "lora-bench"
        program.write_text("#!/bin/sh\nwhile [ \"$1\" != --out ]; do shift; done\n"
                           "printf '{\"kind\":\"context\"}\\n{\"kind\":\"row\"}\\n{\"ki' > \"$2\"\n"
                           "kill -KILL $$\n")
        program.chmod(0o755)
        os.environ["LORA_BENCH_BINARY"] = str(program)
        with self.assertRaisesRegex(lora_bench.Error, "ended by signal 9") as caught:
            lora_bench.run("smoke")
        self.assertEqual(len(caught.exception.rows), 1)

    def test_progress_is_seen_where_it_is_asked_for(self):
        script = ("import lora_bench, sys; "
                  "lora_bench.run('smoke', backends='cpu', no_time=True, quiet=sys.argv[1] == 'q')")
        said = {}
        for word in ("q", "loud"):
            said[word] = subprocess.run(
                [sys.executable, "-c", script, word], capture_output=True, check=True, text=True,
                env={**os.environ, "PYTHONPATH": str(SOURCE / "python")}).stderr
        self.assertEqual(said["q"], "")
        self.assertIn("6 rows: 6 PASSED", said["loud"])


class Cases(InCache):
    def test_fields_with_dots_and_nested_ones_are_the_same_case(self):
        nested = lora_bench.Case(SMALL).run("cpu", no_time=True)
        dotted = lora_bench.Case({"layer.in": 64, "layer.out": [64, 32], "batch.decode": 4,
                                  "adapters.slots": 4}, **{"adapters.rank": 8}).run("cpu", no_time=True)
        self.assertEqual(nested[0]["content"], dotted[0]["content"])

    def test_the_printed_command_reruns_a_case(self):
        row = lora_bench.Case(SMALL, name="mine").run("cpu", no_time=True)[0]
        self.assertEqual(row["scenario"], "mine")
        words = row["repro"].split()
        self.assertEqual(words[0], "lora-bench")
        again = subprocess.run([lora_bench.program(), *words[1:]], capture_output=True, text=True)
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn("PASSED", again.stdout)

    def test_a_file_of_a_case_is_one_for_the_command_line(self):
        file = lora_bench.Case(SMALL).write(self.folder / "new" / "mine.yaml")
        self.assertEqual(json.loads(file.read_text()), SMALL)
        self.assertEqual(lora_bench.run(file, backends="cpu", no_time=True)[0]["scenario"], "mine")

    def test_a_path_among_fields_is_taken_from_the_working_folder(self):
        text = lora_bench.Case(include=pathlib.Path("base.yaml")).text()
        self.assertEqual(json.loads(text), {"include": os.path.abspath("base.yaml")})
        with self.assertRaisesRegex(TypeError, "cannot hold"):
            lora_bench.Case(name=object()).text()

    def test_what_was_exported_is_checked(self):
        case = lora_bench.Case(SMALL)
        [right] = case.export(self.folder, scales_as_written=True)
        self.assertTrue(right.is_file())
        self.assertTrue(right.with_suffix(".json").is_file())
        row = lora_bench.check(right, right, tensor="output")
        self.assertEqual(row["status"], "PASSED")
        self.assertEqual(case.check(right, scales_as_written=True, tensor="output")["status"], "PASSED")
        wrong = case.check(right, tensor="output")  # each adapter has a scale of its own there
        self.assertEqual((wrong["status"], bool(wrong["message"])), ("FAILED", True))

    def test_a_check_of_several_cases_wants_one_named(self):
        case = lora_bench.Case(SMALL, sweep={"batch.decode": [4, 8]})
        written = case.export(self.folder)
        self.assertEqual(len(written), 2)
        with self.assertRaisesRegex(ValueError, "case="):
            case.check(written[0], tensor="output")
        row = case.check(written[1], case=written[1].stem, tensor="output")
        self.assertEqual((row["status"], row["tokens"]), ("PASSED", 8))


class Types(unittest.TestCase):
    """The stub files name what there is."""

    @staticmethod
    def stub(name):
        tree = ast.parse((SOURCE / "python" / "lora_bench" / f"{name}.pyi").read_text())
        return {node.name: node for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}

    @staticmethod
    def fields(node):
        return {one.target.id for one in node.body if isinstance(one, ast.AnnAssign)}

    def test_fields_of_a_problem_are_those_of_the_header(self):
        stub = self.stub("_step")
        named = self.fields(stub["_Fields"]) | self.fields(stub["Problem"])
        header = {name for name, _ in _interface.Problem._fields_}
        self.assertEqual(named, {name for name in header if not name.startswith("reserved")}
                         - {"struct_size"})

    def test_attributes_of_a_step_are_those_that_are_set(self):
        source = ast.parse((SOURCE / "python" / "lora_bench" / "_step.py").read_text())
        [step] = [node for node in source.body if isinstance(node, ast.ClassDef) and node.name == "Step"]
        set_ones = {node.attr for node in ast.walk(step) if isinstance(node, ast.Attribute)
                    and isinstance(node.ctx, ast.Store)}
        self.assertEqual(self.fields(self.stub("_step")["Step"]), set_ones)

    def test_what_a_backend_declares_is_what_the_header_has(self):
        declared = {one.arg for one in self.stub("_declared")["backend"].args.kwonlyargs}
        numerics = {name for name, _ in _interface.Numerics._fields_} - {"struct_size"}
        self.assertEqual(declared, numerics | {"device", "takes", "supports", "workspace_bytes", "prepare",
                                               "prepared_bytes", "versions"})

    def test_every_public_name_is_there(self):
        for name in lora_bench.__all__:
            self.assertIsNotNone(getattr(lora_bench, name), name)
        self.assertFalse(hasattr(lora_bench, "nothing"))

    def test_the_program_is_given_no_more_than_backends_need(self):
        loaded = subprocess.run(
            [sys.executable, "-c", "import lora_bench._door, sys; print(*sys.modules)"],
            capture_output=True, check=True, text=True,
            env={**os.environ, "PYTHONPATH": str(SOURCE / "python")}).stdout.split()
        self.assertIn("lora_bench._door", loaded)
        for module in ("lora_bench._api", "lora_bench._program"):
            self.assertNotIn(module, loaded)


if __name__ == "__main__":
    unittest.main()
