"""A complete host kernel for lora-bench in NumPy.

`lora-bench run smoke --backends ./numpy_linear.py`; docs/python.md says what a step has.
"""

import lora_bench
import numpy as np


def memory_of(tensor):
    """The tensor as an array over the same memory: NumPy has no bf16 and gets its bits."""
    return np.asarray(tensor.bits if tensor.dtype == "bf16" else tensor)


def numbers(memory):
    if memory.dtype == np.uint16:
        return (memory.astype(np.uint32) << 16).view(np.float32)
    return memory.astype(np.float32)


def stored(values, dtype):
    """What is written for fp32 values: rounded to the nearest, ties to even."""
    if dtype != np.uint16:
        return values.astype(dtype)
    bits = values.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(values), 0x7FC0, rounded).astype(np.uint16)


@lora_bench.backend(device="cpu", intermediate="fp32")
def linear(step):
    x, y, scale = memory_of(step.x), memory_of(step.y), np.asarray(step.scale)
    for group, adapter in enumerate(step.problem.active_ids):
        rank = step.problem.rank[adapter]
        if rank == 0:
            continue  # such an adapter does nothing, and its weights must not be read
        first, last = step.problem.group_starts[group:group + 2]
        rows = step.problem.token_order[first:last]
        inputs = numbers(x[rows, :step.in_features])
        begin = step.offset_start
        for i, width in enumerate(step.widths):
            a = numbers(memory_of(step.a[i])[adapter, :rank])
            b = numbers(memory_of(step.b[i])[adapter, :, :rank])
            delta = (inputs @ a.T) @ b.T * scale[adapter]
            if step.has_bias:
                delta = delta + numbers(memory_of(step.bias[i])[adapter])
            columns = np.s_[begin:begin + width]
            if step.add_inputs:
                delta = delta + numbers(y[rows, columns])
            y[rows, columns] = stored(delta, y.dtype)
            begin += width
