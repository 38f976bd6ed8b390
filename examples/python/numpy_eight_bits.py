"""Weights, x and h of eight bits in NumPy on a host: a kernel to compare yours with.

`lora-bench verify verify/eight-bits-hidden --backends ./numpy_eight_bits.py`; docs/python.md says
what a step has.
"""

import lora_bench
import numpy as np
from lora_bench import on_host


def kept(problem):
    return problem.h_code_dtype if problem.quantises_h else "fp32"


@lora_bench.backend(device="cpu", intermediate=kept, batch_invariant=False, takes=[
    "scaled_weights", "scaled_activations", "quantised_h", "own_inputs", "zeroed_idle_rows"])
def linear(step):
    y, scale = on_host.memory_of(step.y), np.asarray(step.scale)
    at_shrink = step.scale_at == "shrink"
    columns = np.s_[step.offset_start:step.offset_start + sum(step.widths)]
    if step.zeroes_idle_rows:
        ranks = np.array(step.problem.rank + [0])  # the last is that of no adapter
        y[ranks[step.problem.adapter_of_token] == 0, columns] = 0
    for group, adapter in enumerate(step.problem.active_ids):
        rank = step.problem.rank[adapter]
        if rank == 0:
            continue  # such an adapter does nothing, and its weights must not be read
        first, last = step.problem.group_starts[group:group + 2]
        rows = step.problem.token_order[first:last]
        begin = step.offset_start
        for i, width in enumerate(step.widths):
            h = on_host.x_of(step, i)[rows] @ on_host.weights_of(step, "a", i, adapter)[:rank].T
            h *= scale[adapter] if at_shrink else 1
            if step.quantises_h:
                h = on_host.quantised(step, h)
            delta = h @ on_host.weights_of(step, "b", i, adapter)[:, :rank].T
            delta *= 1 if at_shrink else scale[adapter]
            if step.has_bias:
                delta += on_host.numbers(on_host.memory_of(step.bias[i])[adapter])
            columns = np.s_[begin:begin + width]
            if step.add_inputs:
                delta += on_host.numbers(y[rows, columns])
            y[rows, columns] = on_host.stored(delta, y.dtype)
            begin += width
