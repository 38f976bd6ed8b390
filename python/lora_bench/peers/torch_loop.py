"""PyTorch, a loop over adapters: one product for all slices of shrink, one a slice of expand."""

from lora_bench import peers
from lora_bench.peers import _torch
from lora_bench.peers._torch import Batch, torch


def load():
    _torch.load()
    return "loop over adapters"


def runs_of(problem):
    """Neighbouring rows of an adapter are a view, others are gathered and scattered."""
    batch = problem.once(Batch)
    runs = []
    for adapter, _, rows in batch.groups:
        run = len(rows) == rows[-1] - rows[0] + 1
        runs.append((adapter, slice(rows[0], rows[-1] + 1) if run else batch.numbers(rows, torch.int64), run))
    return batch, runs


def linear(step):
    batch, runs = step.problem.once(runs_of)
    a, *slices_of_b = _torch.packed_a(step.problem).views(step)
    x, y, rank = _torch.x_of(step), _torch.y_of(step), step.max_rank
    with batch.memory():
        for adapter, index, run in runs:
            h = (x[index] if run else x.index_select(0, index)) @ a[adapter].T
            for i, b in enumerate(slices_of_b):
                columns = y[:, batch.offsets[i]:batch.offsets[i + 1]]
                part = h[:, i * rank:(i + 1) * rank]
                if run:
                    columns[index].addmm_(part, b[adapter].T)
                else:
                    columns[index] = torch.addmm(columns.index_select(0, index), part, b[adapter].T)


def logits(step):
    linear(step)


def shrink(step):
    """The steps of our `cublas`: a product a slice with an fp32 result, and the scale. What lies above a rank makes lanes
    of h that nobody asks for."""
    batch, runs = step.problem.once(runs_of)
    x, h, scale = _torch.x_of(step), _torch.view(step.h), _torch.view(step.scale)
    weights = [_torch.view(a) for a in step.a]
    with batch.memory():
        for adapter, index, run in runs:
            inputs = x[index] if run else x.index_select(0, index)
            for i, a in enumerate(weights):
                in_place = h[i, index] if run and h.dtype == torch.float32 else None
                part = product(inputs, a[adapter].T, in_place)
                if step.scale_at == "shrink":
                    part.mul_(scale[adapter])
                if in_place is None:
                    h[i, index] = part.to(h.dtype)


def product(left, right, out):
    if left.is_cuda:
        return torch.mm(left, right, out_dtype=torch.float32, out=out)
    return torch.mm(left.float(), right.float(), out=out)


peers.backends([linear, logits], load, device="cuda" if _torch.has_gpu() else "cpu", supports=_torch.supports,
               prepared_bytes=lambda problem: _torch.packed_a(problem).bytes, prepare=_torch.prepare_packed_a,
               summation="cuBLAS, fp32 sums; h in 16 bits; y added inside the product",
               **_torch.declared(known_order=False, scaled_b=True, rounds_delta=False))
peers.backends([shrink], load, device="cuda" if _torch.has_gpu() else "cpu", supports=_torch.supports_shrink,
               summation="cuBLAS, fp32 sums; h in fp32 until it is stored", batch_invariant=False,
               unit_roundoff=2.0**-23)
