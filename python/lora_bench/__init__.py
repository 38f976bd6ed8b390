"""Backends of lora-bench in Python.

    import lora_bench

    @lora_bench.backend(device="cuda", intermediate="bf16")
    def linear(step):
        my_kernel(step.y, step.x, step.a, step.b, step.plan, step.scale)

and `lora-bench run smoke --backends ./mine.py`. A function is named after the op that it does:
shrink, expand, linear, embedding or logits; a file may have several. docs/python.md goes through it.
"""

from ._declared import backend
from ._step import Problem, Step
from ._tensor import Tensor

__all__ = ["backend", "Problem", "Step", "Tensor"]
