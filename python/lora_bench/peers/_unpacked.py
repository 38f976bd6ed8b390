"""A package's LoRA modules without the package: from the files that _unpack.py took out of its wheel.

`import PACKAGE.x.y` finds those files. No __init__.py is run, since those import the whole package. What
the modules import from elsewhere in it is a stand-in: what they need at run time is given by the peer,
anything else refuses to be used, by name.
"""

import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import sys
import types
from pathlib import Path

from lora_bench import peers
from lora_bench.peers import _torch


class Absent:
    """May be imported and named, as in an annotation, but not asked, called or compared."""

    def __init__(self, name):
        self._name = name

    def _refuse(self, *arguments, **options):
        raise RuntimeError(f"{self._name} is not among the unpacked modules: install the package to run this")

    __call__ = __bool__ = __eq__ = __iter__ = __len__ = __getitem__ = __int__ = __index__ = _refuse
    __hash__ = object.__hash__

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self._name}.{name}")


class StandIn(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        whole = f"{self.__name__}.{name}"
        return importlib.import_module(whole) if self.__spec__.loader.knows(whole) else Absent(whole)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, package, folder, given):
        self.package, self.folder, self.given = package, Path(folder), given

    def knows(self, name):
        return name in self.given or self.file(name).is_file()

    def file(self, name):
        return self.folder / (name.replace(".", "/") + ".py")

    def find_spec(self, name, path=None, target=None):
        if name != self.package and not name.startswith(self.package + "."):
            return None
        if name not in self.given and self.file(name).is_file():
            return importlib.util.spec_from_file_location(name, self.file(name))
        spec = importlib.machinery.ModuleSpec(name, self, is_package=True)
        place = self.file(name).with_suffix("")
        spec.submodule_search_locations = [str(place)] if place.is_dir() else []
        return spec

    def create_module(self, spec):
        return StandIn(spec.name)

    def exec_module(self, module):
        vars(module).update(self.given.get(module.__name__, {}))


def version_in(package):
    """Of the package that was unpacked into the folder of LORA_BENCH_PEER_MODULES; None where it has none."""
    if not peers.FOLDER or not Path(peers.FOLDER, package).is_dir():
        return None
    found = [one for one in importlib.metadata.distributions(path=[peers.FOLDER]) if one.metadata["Name"] == package]
    if not found:
        raise peers.Missing(f"{peers.FOLDER} has {package} without its METADATA: "
                            f"python3 -m lora_bench.peers unpack WHEEL --to DIR makes both")
    return found[0].version


def load(package, stand_ins, load_ops):
    """The versions of the package and of what its ops run on, once `load_ops` has imported them."""
    _torch.load()
    try:
        import triton
        version = version_in(package)
        if version:
            if not any(isinstance(finder, Finder) and finder.package == package for finder in sys.meta_path):
                sys.meta_path.insert(0, Finder(package, peers.FOLDER, stand_ins()))
            told = f"{package} {version} (LoRA ops alone, unpacked from its wheel)"
        else:
            told = f"{package} {importlib.metadata.version(package)} (installed)"
        if not _torch.has_gpu() and not interpreted():
            raise peers.Missing("needs a GPU (with TRITON_INTERPRET=1 it can be proved without)")
        load_ops()
    except (ImportError, AttributeError, RuntimeError) as error:
        raise peers.Missing(f"no {package} with known LoRA ops here ({error}): pip install {package}, or "
                            f"python3 -m lora_bench.peers unpack WHEEL --to DIR and LORA_BENCH_PEER_MODULES=DIR") from error
    return f"{told}, triton {triton.__version__}"


def interpreted():
    return os.environ.get("TRITON_INTERPRET") == "1"


def device():
    return "cpu" if interpreted() else "cuda"


def triton_supports(supports):
    """`supports` of a peer made of Triton's kernels, on the host too."""
    def asked(problem):
        if interpreted() and problem.x_dtype == "bf16":
            return "Triton's interpreter knows no bf16 products (--set dtype=fp16)"
        return supports(problem)
    return asked
