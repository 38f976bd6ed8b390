"""A package's LoRA modules without the package: from the files that unpack.py took out of its wheel.

`import PACKAGE.x.y` finds those files. No __init__.py is run, since those import the whole package. What
the modules import from elsewhere in it is a stand-in: what they need at run time is given by the peer,
anything else refuses to be used, by name.
"""
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import sys
import types
from pathlib import Path

import torch_steps
from arrays import Missing


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


def load(package, folder, given):
    """Makes the modules importable; returns the version. `given`: what stands in, by module and name."""
    found = [d for d in importlib.metadata.distributions(path=[str(folder)]) if d.metadata["Name"] == package]
    if not found or not (Path(folder) / package).is_dir():
        raise Missing(f"{folder} holds no {package}: "
                      f"scripts/peers/unpack.py {package}-VERSION.whl --to {folder} makes it")
    sys.meta_path.insert(0, Finder(package, folder, given))
    return found[0].version


def version_of(package, name, folder, stand_ins, load_ops):
    """Of the package that is installed, or whose ops lie in the folder, and of what they run on, after they were loaded."""
    torch_version = torch_steps.available()
    try:
        import triton
        if folder:
            version = f"{package} {load(package, folder, stand_ins())} (LoRA ops alone, unpacked from its wheel)"
        else:
            version = f"{package} {importlib.metadata.version(package)}"
        needs_gpu()
        load_ops()
    except (ImportError, AttributeError, RuntimeError) as error:
        raise Missing(f"no {name} with known LoRA ops here ({error}): "
                      f"pip install {package}, or --unpacked DIR") from error
    return f"{version}, {torch_version}, triton {triton.__version__}"


def needs_gpu():
    """Triton's kernels run on a GPU; with TRITON_INTERPRET=1 they can be proved, not timed, without one."""
    import os

    import torch
    if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
        raise Missing("needs a GPU (with TRITON_INTERPRET=1 and --no-time it can be proved without)")
