"""SGLang's uno_cublas, for the one adapter of a speculative draft: cuBLAS products, a slice of expand added inside one.

It runs shrink beside the base product on a stream of its own; here both halves follow one another. B has the scale.
"""

import importlib
import types

from lora_bench import peers
from lora_bench.peers import _sglang, _torch
from lora_bench.peers._torch import Batch, torch


def uno():
    return importlib.import_module("sglang.srt.lora.backend.uno_cublas_backend").UnoCublasLoRABackend


def load():
    return _sglang.load(lambda: uno()._compute_lora_a)


def supports(problem):
    if problem.active != 1 or problem.rows_with_adapter != problem.tokens or problem.rank[problem.active_ids[0]] == 0:
        return "takes batches of which one adapter has all rows"
    return _torch.supports(problem)


def prepare(step):
    _torch.prepare_packed(step, scaled=True, lanes_apart=False)


def backend_of(problem):
    """The backend without its server, and the route of one adapter: of all rows, as of several requests, of which
    none has a row to be left alone."""
    adapter = problem.active_ids[0]
    rank = problem.rank[adapter]
    route = types.SimpleNamespace(weight_index=adapter, rank=rank, scaling=1.0, batch_size=0)
    return problem.once(Batch), object.__new__(uno()), route


def linear(step):
    batch, backend, route = step.problem.once(backend_of)
    a, b = _sglang.weights_of(step)
    rank, adapter, y = route.rank, route.weight_index, _torch.y_of(step)
    with batch.memory():
        hidden = torch.empty(step.tokens, step.slices * rank, dtype=y.dtype, device=y.device)
        backend._compute_lora_a(_torch.x_of(step), a[adapter, :step.slices * rank], route, output=hidden)
        for i, (begin, end) in enumerate(zip(batch.offsets, batch.offsets[1:])):
            backend._accumulate_lora_b(hidden=hidden[:, i * rank:(i + 1) * rank], active_b=b[adapter, begin:end, :rank],
                                       base_output=y, output_start=begin, output_end=end, route=route)


def logits(step):
    linear(step)


peers.backends([linear, logits], load, device="cuda" if _torch.has_gpu() else "cpu", supports=supports, prepare=prepare,
               prepared_bytes=_sglang.prepared_bytes, summation="cuBLAS, fp32 sums; h in 16 bits; y added inside the product",
               **_torch.declared(known_order=False, scaled_b=True, rounds_delta=False))
