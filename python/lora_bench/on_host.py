"""What a kernel on a host needs of NumPy, which has no bf16."""

import numpy as np


def memory_of(tensor):
    """The tensor as an array over the same memory: of bf16 its bits."""
    return np.asarray(tensor.bits if tensor.dtype == "bf16" else tensor)


def numbers(memory):
    """The numbers of such an array, in fp32."""
    if memory.dtype == np.uint16:
        return (memory.astype(np.uint32) << 16).view(np.float32)
    return memory.astype(np.float32)


def stored(values, dtype):
    """What such an array holds for fp32 values: rounded to the nearest, ties to even."""
    if dtype != np.uint16:
        with np.errstate(over="ignore"):
            return values.astype(dtype)
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(values), 0x7FC0, rounded).astype(np.uint16)
