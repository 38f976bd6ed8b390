"""What stands behind the peers of python/lora_bench/peers, as far as it needs no PyTorch."""

import contextlib
import io
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
from lora_bench.peers import _batch, _unpack, _unpacked  # noqa: E402


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


if __name__ == "__main__":
    with contextlib.redirect_stdout(io.StringIO()):
        unittest.main()
