"""An x of eight bits made by NumPy on a host, by every rule that `op: quantise` has.

`lora-bench verify verify/quantise --backends ./numpy_quantise.py`; docs/python.md says what a step
has.
"""

import lora_bench
import numpy as np
from lora_bench import on_host


def by_group(values, step):
    """A scale for each number."""
    if step.columns == 0:
        return values[:, :0]
    spread = np.repeat(values, step.group, axis=1)[:, :step.columns]
    return np.broadcast_to(spread, (step.rows, step.columns))


def largest(x, step):
    """Of each scale; NaN is none."""
    edges = np.arange(0, step.columns, step.group)
    most = np.fmax.reduceat(np.abs(x), edges, axis=1)
    return most if step.scale_rows == step.rows else np.fmax.reduce(most, axis=0, keepdims=True)


def made(x, step):
    return on_host.scales_for(largest(x, step), step.q_dtype, step.least_amax, step.least_scale,
                              step.power_of_two)


@lora_bench.backend(device="cpu")
@np.errstate(invalid="ignore")  # an infinite x over its scale is NaN
def quantise(step):
    if step.rows == 0:
        return
    x = on_host.numbers(on_host.memory_of(step.x))[:, :step.columns]
    scale = np.asarray(step.x_scale) if step.scales_given else made(x, step)
    each = by_group(scale, step)
    values = x * (np.float32(1) / each) if step.multiply else x / each
    on_host.memory_of(step.q)[:] = on_host.codes_of(values, step.q_dtype)
    if not step.scales_given:
        np.asarray(step.q_scale)[:] = scale
