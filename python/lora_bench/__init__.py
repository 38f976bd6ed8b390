"""Proves and times multi-LoRA kernels; backends of lora-bench in Python.

From a script or a notebook:

    import lora_bench

    rows = lora_bench.run("decode", backends=["auto", "./mine.py"])

and a kernel in mine.py:

    @lora_bench.backend(device="cuda", intermediate="bf16")
    def linear(step):
        my_kernel(step.y, step.x, step.a, step.b, step.plan, step.scale)

A function is named after the op that it does: shrink, expand, linear, embedding, logits,
metadata or quantise; a file may have several. docs/python.md goes through that, docs/python-api.md through the rest.
"""

from typing import TYPE_CHECKING, Any

from ._declared import backend
from ._step import MetadataStep, Problem, QuantiseStep, Step
from ._tensor import Tensor

if TYPE_CHECKING:
    from ._api import Case, Row, Rows, check, export, read, run, verify
    from ._program import Error, MachineError, NotPassed, UsageError, program

__all__ = [
    "backend", "MetadataStep", "Problem", "QuantiseStep", "Step", "Tensor",
    "Case", "Row", "Rows", "check", "export", "read", "run", "verify",
    "Error", "MachineError", "NotPassed", "UsageError", "program",
]

_OF_PROGRAM = ("Error", "MachineError", "NotPassed", "UsageError", "program")


def __getattr__(name: str) -> Any:
    # Imported when asked for: the program, which imports this module too, has no need of it.
    if name not in __all__:
        raise AttributeError(f"module 'lora_bench' has no attribute '{name}'")
    if name in _OF_PROGRAM:
        from . import _program as home
    else:
        from . import _api as home  # type: ignore[no-redef]
    return getattr(home, name)
