"""PyTorch's grouped_mm: rows sorted by adapter, one grouped product for shrink and one a slice of expand."""

from lora_bench import peers
from lora_bench.peers import _torch
from lora_bench.peers._torch import Batch, torch


def grouped_mm():
    return getattr(torch.nn.functional, "grouped_mm", getattr(torch, "_grouped_mm", None))


def load():
    version = _torch.load()
    if grouped_mm() is None:
        raise peers.Missing(f"{version} has no grouped_mm; 2.8 and later have it")
    return "grouped_mm"


def supports(problem):
    if problem.y_dtype != "bf16":
        return "takes bf16 alone"
    return _torch.wants_eights(problem) or _torch.supports(problem)


def ends_of(problem):
    """Where the rows of each slot end among those with an adapter."""
    batch = problem.once(Batch)
    rows_of = {group.adapter: len(group.rows) for group in batch.groups}
    ends = [0]
    for slot in range(problem.slots):
        ends.append(ends[-1] + rows_of.get(slot, 0))
    return batch, batch.numbers(ends[1:])


def linear(step):
    batch, ends = step.problem.once(ends_of)
    if not batch.groups:
        return
    a, *slices_of_b = _torch.packed_a(step.problem).views(step)
    rank, y = step.max_rank, _torch.y_of(step)
    with batch.memory():
        h = grouped_mm()(_torch.x_of(step).index_select(0, batch.rows), a.transpose(1, 2), offs=ends)
        delta = torch.cat([grouped_mm()(h[:, i * rank:(i + 1) * rank], b.transpose(1, 2), offs=ends)
                           for i, b in enumerate(slices_of_b)], 1)
        y.index_copy_(0, batch.rows, y.index_select(0, batch.rows).add_(delta))


def logits(step):
    linear(step)


peers.backends([linear, logits], load, supports=supports, prepared_bytes=lambda problem: _torch.packed_a(problem).bytes,
               prepare=_torch.prepare_packed_a, summation="CUTLASS, fp32 sums; h and delta in bf16",
               **_torch.declared(scaled_b=True))
