"""Both products of a layer of experts in NumPy, a hit at a time.

`lora-bench verify verify/experts --backends ./numpy_experts.py`; docs/experts.md says what a pair, a hit and a factor are.
"""

import lora_bench
import numpy as np
from lora_bench.on_host import memory_of, numbers, stored


def hits(step):
    """Yields the slot, the rank and the pairs of each adapter and expert that some pair needs."""
    for group, slot in enumerate(step.problem.active_ids):
        rank = step.problem.rank[slot]
        first, last = step.problem.group_starts[group:group + 2]
        if rank > 0:  # else the adapter has nothing for this expert, or is of rank 0
            yield slot, rank, step.problem.token_order[first:last]


@lora_bench.backend(device="cpu", intermediate="fp32", takes=["shared_x", "row_factors"])
def linear(step):
    x, y, scale = memory_of(step.x), memory_of(step.y), np.asarray(step.scale)
    tokens = np.asarray(step.token_of_row) if step.shares_x else np.arange(step.tokens)
    factor = np.asarray(step.factor) if step.has_factors else np.ones(step.tokens, np.float32)
    for slot, rank, pairs in hits(step):
        inputs = numbers(x[tokens[pairs], :step.in_features])
        begin = step.offset_start
        for i, width in enumerate(step.widths):
            a = numbers(memory_of(step.a[i])[slot, :rank])
            b = numbers(memory_of(step.b[i])[slot, :, :rank])
            delta = (inputs @ a.T) @ b.T * scale[slot] * factor[pairs, None]
            columns = np.s_[begin:begin + width]
            if step.add_inputs:
                delta = delta + numbers(y[pairs, columns])
            y[pairs, columns] = stored(delta, y.dtype)
            begin += width
