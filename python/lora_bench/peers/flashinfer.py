"""FlashInfer's SegmentGEMMWrapper: rows sorted by adapter, a segmented product for shrink and one a slice of expand."""

import sys

from lora_bench import peers
from lora_bench.peers import _torch
from lora_bench.peers._torch import Batch, torch

WORKSPACE_BYTES = 128 << 20  # what its documentation encourages


def load():
    _torch.load()
    if peers.FOLDER:  # where pip install --target laid the package
        sys.path.append(peers.FOLDER)
    try:
        import flashinfer
        flashinfer.SegmentGEMMWrapper
    except (ImportError, AttributeError) as error:
        raise peers.Missing(f"no FlashInfer with a SegmentGEMMWrapper here ({error}): "
                            "pip install flashinfer-python") from error
    if not _torch.has_gpu():
        raise peers.Missing("FlashInfer needs a GPU")
    try:
        compiled(flashinfer)
    except Exception as error:  # no compiler, or one that its kernels are not for
        raise peers.Missing(f"FlashInfer {flashinfer.__version__} cannot make its segment GEMM here: "
                            f"{str(error).strip().splitlines()[-1][:300]}") from error
    return f"flashinfer {flashinfer.__version__}, SegmentGEMMWrapper, backend auto"


def wrapper():
    import flashinfer
    return flashinfer.SegmentGEMMWrapper(torch.empty(WORKSPACE_BYTES, dtype=torch.int8, device="cuda"))


def compiled(flashinfer):
    """Its kernels are compiled by the first launch, unless flashinfer-jit-cache has them: takes minutes."""
    x, weights = (torch.zeros(*shape, dtype=torch.bfloat16, device="cuda") for shape in ((8, 64), (1, 64, 64)))
    wrapper().run(x, weights, 1, True, seg_indptr=torch.tensor([0, 8], dtype=torch.int64, device="cuda"))
    torch.cuda.synchronize()


def supports(problem):
    return _torch.wants_eights(problem) or _torch.supports(problem)


def segments_of(problem):
    batch = problem.once(Batch)
    starts = [0]
    for group in batch.groups:
        starts.append(starts[-1] + len(group.rows))
    adapters = batch.numbers([group.adapter for group in batch.groups], torch.int64)
    return batch, batch.numbers(starts, torch.int64), adapters, wrapper()


def linear(step):
    batch, starts, adapters, product = step.problem.once(segments_of)
    if not batch.groups:
        return
    a, *slices_of_b = _torch.packed_a(step.problem).views(step)
    rank, y = step.max_rank, _torch.y_of(step)

    def run(values, weights):
        return product.run(values, weights, len(batch.groups), True, seg_indptr=starts, weight_indices=adapters)

    with batch.memory():
        h = run(_torch.x_of(step).index_select(0, batch.rows), a)
        delta = torch.cat([run(h[:, i * rank:(i + 1) * rank].contiguous(), b) for i, b in enumerate(slices_of_b)], 1)
        y.index_copy_(0, batch.rows, y.index_select(0, batch.rows).add_(delta))


def logits(step):
    linear(step)


peers.backends([linear, logits], load, supports=supports, prepared_bytes=lambda problem: _torch.packed_a(problem).bytes,
               prepare=_torch.prepare_packed_a, summation="CUTLASS, fp32 sums; h and delta in 16 bits",
               **_torch.declared(scaled_b=True))
