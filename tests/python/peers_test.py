"""What stands behind the peers of python/lora_bench/peers, as far as it needs no PyTorch."""

import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest
import zipfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "python"))

from lora_bench import peers  # noqa: E402
from lora_bench.peers import _batch, _candidate, _search, _tune, _tuned_files, _unpack, _unpacked  # noqa: E402


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, text):
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file


class Listed(InFolder):
    def test_each_peer_has_a_line_and_each_line_a_peer(self):
        folder = pathlib.Path(peers.__file__).parent
        files = {file.stem.replace("_", "-") for file in folder.glob("[!_]*.py")}
        self.assertEqual({name for name, *_ in peers.lines()}, files)

    def test_what_is_not_installed_is_named_with_its_package(self):
        environment = {**os.environ, "PYTHONPATH": str(SOURCE / "python")}
        code = ("import importlib.util as util; util.find_spec = lambda name: None if name == 'flashinfer' else 1\n"
                "from lora_bench import peers\n"
                "print(*(why for name, _, _, why in peers.lines() if name in ('flashinfer', 'numpy')), sep='|')")
        said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
        self.assertEqual(said.stdout, "|no module flashinfer: pip install flashinfer-python\n")


class Batches(unittest.TestCase):
    def test_rows_are_grouped_by_adapter_and_those_of_rank_0_left_out(self):
        problem = types.SimpleNamespace(token_order=[4, 1, 0, 3, 2], group_starts=[0, 2, 3, 4], active_ids=[0, 2, 5],
                                        rank=[8, 0, 0, 0, 0, 16], widths=[3, 2])
        self.assertEqual(_batch.groups_of(problem), [(0, 8, [1, 4]), (5, 16, [3])])
        self.assertEqual(_batch.columns_of(problem), [0, 3, 5])


class Unpacking(InFolder):
    def wheel(self, files):
        name = self.folder / "vllm-1.whl"
        with zipfile.ZipFile(name, "w") as wheel:
            for file, text in files.items():
                wheel.writestr(file, text)
        return str(name)

    def test_only_lora_ops_come_out_of_a_wheel(self):
        wheel = self.wheel({"vllm/__init__.py": "", "vllm/lora/ops/triton_ops/lora_shrink_op.py": "", "vllm/engine.py": "",
                            "vllm/lora/ops/triton_ops/__init__.py": "", "vllm-1.dist-info/METADATA": "Name: vllm\n"})
        lines = list(_unpack.unpack([wheel], str(self.folder / "out")))
        self.assertEqual(len(lines), 1)
        files = {str(file.relative_to(self.folder / "out")) for file in (self.folder / "out").rglob("*") if file.is_file()}
        self.assertEqual(files, {"vllm/lora/ops/triton_ops/lora_shrink_op.py", "vllm-1.dist-info/METADATA"})

    def test_what_is_no_wheel_or_has_no_ops_is_refused(self):
        for file, said in ((self.wheel({"numpy/core.py": ""}), "has no LoRA ops"),
                           (str(self.write("text.whl", "text")), "is no wheel"), ("no/such.whl", "is no wheel")):
            with self.assertRaisesRegex(ValueError, said):
                list(_unpack.unpack([file], str(self.folder / "out")))
        environment = {**os.environ, "PYTHONPATH": str(SOURCE / "python")}
        command = [sys.executable, "-m", "lora_bench.peers", "unpack", "no/such.whl", "--to", str(self.folder)]
        result = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn("no/such.whl is no wheel", result.stderr)


class Unpacked(InFolder):
    """A package of which some modules were unpacked."""

    def find(self, package, given):
        finder = _unpacked.Finder(package, str(self.folder), given)
        sys.meta_path.insert(0, finder)
        self.addCleanup(sys.meta_path.remove, finder)
        self.addCleanup(lambda: [sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == package])

    def test_modules_come_from_the_folder_and_what_they_need_from_the_peer(self):
        self.write("engine_a/__init__.py", "raise RuntimeError('the whole package')")
        self.write("engine_a/ops/add.py", "from engine_a.tools import name\nfrom engine_a.other import Thing\n"
                                          "def add(thing: Thing = None): return name\n")
        self.find("engine_a", {"engine_a.tools": {"name": "given"}})
        import engine_a.ops.add
        self.assertEqual(engine_a.ops.add.add(), "given")

    def test_what_is_neither_there_nor_given_refuses_to_be_used_by_name(self):
        self.write("engine_b/ops/add.py", "from engine_b.other import thing\n")
        self.find("engine_b", {})
        import engine_b.ops.add
        with self.assertRaisesRegex(RuntimeError, "engine_b.other.thing is not among the unpacked modules"):
            engine_b.ops.add.thing()

    def test_a_folder_without_the_version_of_its_package_is_told(self):
        self.write("vllm/lora/ops.py", "")
        before, peers.FOLDER = peers.FOLDER, str(self.folder)
        self.addCleanup(setattr, peers, "FOLDER", before)
        self.assertIsNone(_unpacked.version_in("sglang"))
        with self.assertRaisesRegex(peers.Missing, "without its METADATA"):
            _unpacked.version_in("vllm")
        self.write("vllm-0.33.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: vllm\nVersion: 0.33.0\n")
        self.assertEqual(_unpacked.version_in("vllm"), "0.33.0")


SHAPES = [_tuned_files.Shape(64, 64, 16, 4096, (4096, 1024, 1024), False), _tuned_files.Shape(8, 2048, 16, 4096, (4096,), False)]


def found(chosen, quotients=(0.5, 0.9)):
    return [_tuned_files.Found(shape, {**chosen, "of": shape.tokens}, quotient)
            for shape, quotient in zip(SHAPES, quotients)]


class TunedFiles(unittest.TestCase):
    def test_vllm_finds_its_parameters_by_all_sizes_and_any_number_of_slices(self):
        each = [_tuned_files.Found(shape, {"shrink": {"block_m": shape.tokens}, "expand": {"block_n": shape.tokens}}, 0.5)
                for shape in SHAPES]
        files = {name: json.loads(text) for name, text in _tuned_files.vllm("NVIDIA H200-X", each).items()}
        self.assertEqual(set(files), {"NVIDIA_H200_X_SHRINK.json", "NVIDIA_H200_X_EXPAND_TRUE.json"})
        shrink, expand = (files[name] for name in ("NVIDIA_H200_X_SHRINK.json", "NVIDIA_H200_X_EXPAND_TRUE.json"))
        self.assertEqual(shrink["65"]["3"]["64"]["4096"]["16"], {"block_m": 64})
        self.assertEqual(expand["65"]["3"]["64"]["16"]["4096"], {"block_n": 64})
        self.assertEqual(shrink["9"]["1"]["2048"]["4096"]["16"], {"block_m": 2048})
        for table in (shrink, expand):
            for by_slices in table.values():  # vLLM indexes it, and would end by a KeyError
                self.assertEqual(set(by_slices), {"1", "2", "3", "4"})

    def test_csgmv_has_a_file_for_each_size_and_an_entry_for_each_chunk(self):
        each = [_tuned_files.Found(shape, {"shrink": {"BLOCK_N": 16}, "expand": {"BLOCK_N": shape.tokens}}, 0.5)
                for shape in SHAPES]
        files = _tuned_files.csgmv("NVIDIA H200", "3.6.0", lambda shape: 16, each)
        name = "csgmv_configs/triton_3_6_0/lora_expand,K=6144,R=16,S=3,device=NVIDIA_H200.json"
        self.assertEqual(json.loads(files[name]), {"16": {"BLOCK_N": 64}})
        self.assertIn("csgmv_configs/triton_3_6_0/lora_shrink,K=4096,R=16,S=1,device=NVIDIA_H200.json", files)
        self.assertEqual(len(files), 4)

    def test_what_two_shapes_share_is_what_helps_most(self):
        one, other = SHAPES[1], SHAPES[1]._replace(tokens=4096)
        each = [_tuned_files.Found(one, {"shrink": {"BLOCK_N": 16}, "expand": {"BLOCK_N": 32}}, 0.9),
                _tuned_files.Found(other, {"shrink": {"BLOCK_N": 64}, "expand": {"BLOCK_N": 128}}, 0.4)]
        for text in _tuned_files.csgmv("G", "3", lambda shape: 16, each).values():
            self.assertIn(json.loads(text)["16"]["BLOCK_N"], (64, 128))

    def test_plans_stand_before_the_shipped_ones_and_smaller_bounds_first(self):
        shipped = {"rows": [{"name": "decode.any", "spec": {}}]}
        plans = found({"a_family": "grouped"}) + [_tuned_files.Found(SHAPES[0]._replace(tokens=8), {"of": 8}, 0.5)]
        files = _tuned_files.dense("sm90", 512, shipped, plans)
        rows = json.loads(files["sm90.plans.json"])["rows"]
        self.assertEqual([row["spec"].get("of") for row in rows], [8, 64, 2048, None])
        self.assertEqual([row.get("phase") for row in rows], ["decode", "decode", "prefill", None])
        self.assertEqual(rows[0]["max_out_features"], 6144)
        self.assertEqual(rows[-1]["name"], "decode.any")


class Searching(unittest.TestCase):
    SPACE = {("shrink", "split"): [1, 2, 4], ("expand", "wide"): [64, 128]}

    def times(self, candidates):
        """Best are 4 and 128 for `a`, 1 and 64 for `b`; a split of 2 is wrong."""
        self.asked += len(candidates)
        wanted = {"a": (4, 128), "b": (1, 64)}
        answers = []
        for candidate in candidates:
            answers.append({})
            for case, chosen in candidate.items():
                if chosen["shrink"]["split"] != 2:
                    far = (chosen["shrink"]["split"] != wanted[case][0]) + (chosen["expand"]["wide"] != wanted[case][1])
                    answers[-1][case] = (10.0 + 5 * far, 0.5)
        return answers

    def test_each_case_gets_what_is_quickest_for_it_and_nothing_that_is_wrong(self):
        self.asked = 0
        as_shipped = {"a": (20.0, 0.5), "b": (10.0, 0.5)}
        best = _search.search(as_shipped, {"a": SHIPPED, "b": SHIPPED}, self.SPACE, self.times)
        self.assertEqual(best["a"], ({"shrink": {"split": 4}, "expand": {"wide": 128}}, 10 / 20))
        self.assertEqual(best["b"], (SHIPPED, 1.0))
        self.assertEqual(self.asked, 3 + 1)

    def test_values_that_do_not_go_together_leave_the_best_alone(self):
        def times(candidates):
            return [{case: (4.0 + 3 * (chosen["shrink"]["split"] == 4) + 4 * (chosen["expand"]["wide"] == 128)
                            if chosen["shrink"]["split"] == 1 or chosen["expand"]["wide"] == 64 else 30.0, 0.5)
                     for case, chosen in one.items()} for one in candidates]
        best = _search.search({"a": (10.0, 0.5)}, {"a": SHIPPED}, {("shrink", "split"): [4], ("expand", "wide"): [128]}, times)
        self.assertEqual(best["a"], ({"shrink": {"split": 4}, "expand": {"wide": 64}}, 7 / 10))

    def test_what_is_within_the_noise_is_no_gain(self):
        def times(candidates):
            return [{case: (9.8, 0.5) for case in one} for one in candidates]
        best = _search.search({"a": (10.0, 0.5)}, {"a": SHIPPED}, self.SPACE, times)
        self.assertEqual(best["a"], (SHIPPED, 1.0))

    def test_a_family_that_cannot_split_takes_no_split_along(self):
        plan = {"a_family": "grouped", "b_family": "grouped", "a_tiles": {"SPLIT_K": 4, "BLOCK_SIZE_K": 128}, "b_tiles": {}}
        rows = _search.changed(plan, ("families",), ("per_row", "per_row"))
        self.assertEqual(rows["a_tiles"], {"BLOCK_SIZE_K": 128})
        self.assertIsNone(_search.changed(rows, ("a_tiles", "SPLIT_K"), 8))
        self.assertEqual(_search.changed(plan, ("block_size",), 32)["block_size"], 32)


SHIPPED = {"shrink": {"split": 1}, "expand": {"wide": 64}}


class Tuning(InFolder):
    """The search behind `lora-bench tune --for`, on an engine and a program that are made up."""

    def rows_of(self, backend, us_of):
        for tokens, case in ((8, "a"), (8, "again"), (64, "b")):
            us, status = us_of(tokens)
            yield {"backend": backend, "case": case, "status": status, "time_us": us, "noise_us": 0.25, "slots": 4,
                   "tokens": tokens, "rank": 16, "in_features": 512, "out_features": "512+128", "op": "linear",
                   "message": "wrong" if status == "FAILED" else ""}

    def run_of(self, backends):
        rows = []
        for backend in backends:
            if backend == "peer:made-up":
                rows += self.rows_of(backend, lambda tokens: (10.0, "PASSED"))
                continue
            table = dict(self.loaded(backend))
            rows += self.rows_of(pathlib.Path(backend).stem,
                                 lambda tokens, table=table: self.time_of(table, tokens))
        return rows

    def loaded(self, file):
        """What a candidate's file hands to the peer, by shape."""
        seen = []
        problem = {8: None, 64: None}
        for tokens in problem:
            problem[tokens] = types.SimpleNamespace(slots=4, tokens=tokens, max_rank=16, in_features=512, widths=[512, 128],
                                                    op="linear")
        before = _candidate.runpy.run_path
        _candidate.runpy.run_path = lambda peer: seen.append((peer, {n: peers.chosen(p) for n, p in problem.items()}))
        try:
            before(file)
        finally:
            _candidate.runpy.run_path = before
        (peer, chosen), = seen
        self.assertTrue(peer.endswith("lora_bench/peers/made_up.py"))
        self.assertIsNone(peers.chosen)
        return chosen

    def time_of(self, table, tokens):
        split = table[tokens]["shrink"]["split"] if table[tokens] else 1
        if tokens == 64:
            return (10.0 + split, "PASSED")  # as shipped is best
        return (10.0 / split, "FAILED" if split == 4 else "PASSED")

    def test_what_passed_and_is_quicker_is_written_into_the_files_of_the_engine(self):
        engine = types.ModuleType("lora_bench.peers.made_up")
        engine.load = lambda: "1.0"
        engine.shipped = lambda problem: SHIPPED
        engine.tuned_files = lambda found: _tuned_files.vllm("G", found)
        sys.modules[engine.__name__] = engine
        self.addCleanup(sys.modules.pop, engine.__name__)
        _tune.ENGINES["made up"] = {"made_up": {("shrink", "split"): [1, 2, 4]}}
        self.addCleanup(_tune.ENGINES.pop, "made up")
        searched, quicker, files = _tune.tune("made up", self.folder / "out", self.run_of, lambda line: None)
        self.assertEqual((searched, quicker, files), (2, 1, ["G_EXPAND_TRUE.json", "G_SHRINK.json"]))
        table = json.loads((self.folder / "out" / "G_SHRINK.json").read_text(encoding="utf-8"))
        self.assertEqual(table["5"]["2"]["8"]["512"]["16"], {"split": 2})
        self.assertEqual(table["5"]["2"]["64"]["512"]["16"], {"split": 1})

    def test_after_the_time_no_more_candidates_are_tried_and_that_is_told(self):
        now, tried = [0.0], []

        def run(files):
            tried.extend(files)
            now[0] += 10
            return []
        bench = _tune.Bench("made_up", self.folder, run, end=15, now=lambda: now[0])
        shape = _tune.Shape(4, 8, 16, 512, (512,), False)
        candidates = [{shape._replace(tokens=tokens): SHIPPED for tokens in range(33)} for _ in range(5)]
        self.assertEqual(bench.times_of(candidates), [{}] * 5)
        self.assertEqual((len(tried), bench.left_out, bench.count), (2, 3, 5))

    def test_a_shape_that_is_wrong_as_shipped_is_left_out_and_told(self):
        engine = types.ModuleType("lora_bench.peers.made_up")
        engine.load, engine.shipped = (lambda: "1.0"), (lambda problem: SHIPPED)
        sys.modules[engine.__name__] = engine
        self.addCleanup(sys.modules.pop, engine.__name__)
        _tune.ENGINES["made up"] = {"made_up": {("shrink", "split"): [1, 2, 4]}}
        self.addCleanup(_tune.ENGINES.pop, "made up")
        said = []
        nothing = _tune.tune("made up", self.folder / "out", lambda backends: list(self.rows_of(
            "peer:made-up", lambda tokens: (None, "FAILED"))) if backends == ["peer:made-up"] else [], said.append)
        self.assertEqual(nothing, (0, 0, []))
        self.assertIn("peer:made-up: a as shipped is FAILED: wrong; its shape is left out", said)
        self.assertFalse((self.folder / "out").exists())


if __name__ == "__main__":
    with contextlib.redirect_stdout(io.StringIO()):
        unittest.main()
