"""A complete host kernel for lora-bench in NumPy.

`lora-bench run smoke --backends ./numpy_linear.py`; docs/python.md says what a step has.
"""

import lora_bench
import numpy as np
from lora_bench.on_host import memory_of, numbers, stored


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
