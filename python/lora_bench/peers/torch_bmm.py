"""PyTorch, the weights of each row gathered and multiplied in a batch: what one writes first."""

from lora_bench import peers
from lora_bench.peers import _torch
from lora_bench.peers._torch import Batch, torch

MOST_GATHERED = 8e9  # bytes


def load():
    _torch.load()
    return "gather and bmm"


def supports(problem):
    sizes = problem.slices * problem.in_features + sum(problem.widths)
    gathered = 2.0 * problem.rows_with_adapter * problem.max_rank * sizes
    if gathered > MOST_GATHERED:
        return f"a copy of the weights for each row takes {gathered / 1e9:.1f} GB"
    return _torch.supports(problem)


def linear(step):
    batch, rank = step.problem.once(Batch), step.max_rank
    if not batch.groups:
        return
    y = _torch.y_of(step)
    with batch.memory():
        a, b = (weights.index_select(0, batch.adapters) for weights in _torch.packed(step.problem).views(step))
        h = torch.bmm(a, _torch.x_of(step).index_select(0, batch.rows)[:, :, None])
        delta = torch.cat([torch.bmm(b[:, begin:end], h[:, i * rank:(i + 1) * rank])
                           for i, (begin, end) in enumerate(zip(batch.offsets, batch.offsets[1:]))], 1)
        y.index_copy_(0, batch.rows, y.index_select(0, batch.rows).add_(delta[:, :, 0]))


def logits(step):
    linear(step)


def prepare(step):
    _torch.prepare_packed(step, scaled=True)


peers.backends([linear, logits], load, device="cuda" if _torch.has_gpu() else "cpu", supports=supports,
               prepared_bytes=lambda problem: _torch.packed(problem).bytes, prepare=prepare,
               summation="batched cuBLAS, fp32 sums; h and delta in 16 bits",
               **_torch.declared(known_order=False, scaled_b=True))
