"""NumPy, a product for each adapter and slice, in fp32 on the host: not fast, but it runs anywhere."""

from lora_bench import peers
from lora_bench.peers._batch import columns_of, groups_of

try:
    import numpy as np

    from lora_bench.on_host import memory_of, numbers, stored
except ImportError:
    np = None


def load():
    if np is None:
        raise peers.Missing("no module numpy: pip install numpy")


def supports(problem):
    return "adds no bias" if problem.has_bias else None


def linear(step):
    x, y, scale = memory_of(step.x), memory_of(step.y), np.asarray(step.scale)
    offsets = columns_of(step.problem)
    for adapter, rank, rows in step.problem.once(groups_of):
        inputs = numbers(x[rows, :step.in_features])
        for i, (a, b) in enumerate(zip(step.a, step.b)):
            if a is None or b is None:  # a slice without columns
                continue
            h = inputs @ numbers(memory_of(a)[adapter, :rank]).T
            delta = h @ numbers(memory_of(b)[adapter, :, :rank]).T * scale[adapter]
            columns = slice(step.offset_start + offsets[i], step.offset_start + offsets[i + 1])
            if step.add_inputs:
                delta = delta + numbers(y[rows, columns])
            y[rows, columns] = stored(delta, y.dtype)


def logits(step):
    linear(step)


peers.backends([linear, logits], load, device="cpu", supports=supports, intermediate="fp32", batch_invariant=False,
               summation="fp32 in the order of NumPy's BLAS, y rounded once")
