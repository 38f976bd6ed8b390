"""What the LoRA backends of SGLang share: where their ops lie, weights and descriptions of batches."""

import enum
import importlib
import types

from lora_bench.peers import _torch, _unpacked
from lora_bench.peers._torch import Batch, torch

FOLDERS = ("sglang.kernels.ops.lora.dense", "sglang.kernels.ops.gemm", "sglang.srt.lora.triton_ops")  # the newest first


def load(load_ops):
    return _unpacked.load("sglang", stand_ins, load_ops)


def op(module):
    for folder in FOLDERS:
        try:
            found = importlib.import_module(f"{folder}.{module}")
        except ModuleNotFoundError as error:
            if not f"{folder}.{module}".startswith(error.name):
                raise
            continue
        if not isinstance(found, _unpacked.StandIn):
            return found
    raise ImportError(f"no {module} in {', '.join(FOLDERS)}")


def stand_ins():
    def device_name():
        return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"

    class RouteViewKind(str, enum.Enum):
        RAW = "raw"
        ALIGNED = "aligned"

    # Its own cache of compiled kernels saves time of the host alone.
    return {"sglang.srt.utils": {"cached_triton_kernel": lambda key=None: lambda kernel: kernel,
                                 "get_device_name": device_name},
            "sglang.srt.lora.backend.triton_backend": {"TritonLoRABackend": object},
            "sglang.kernels.ops.lora.common.route_view": {"RouteView": types.SimpleNamespace,
                                                          "RouteViewKind": RouteViewKind}}


def supports(problem):
    return _torch.wants_no_gaps(problem) or _torch.supports(problem)


def prepare(step):
    """A's slices follow one another at the rank of their adapter; B's lie side by side, without the scale."""
    _torch.prepare_packed(step, scaled=False, lanes_apart=False)


def prepared_bytes(problem):
    return _torch.packed(problem).bytes


def weights_of(step):
    return _torch.packed(step.problem).views(step)


class Segments:
    """Rows of one adapter in segments of at most `longest`; those without an adapter are in none. `info` is what the
    kernels ask of a batch."""

    def __init__(self, problem, longest):
        self.batch = batch = problem.once(Batch)
        segments = [(group.adapter, group.rows[i:i + longest]) for group in batch.groups
                    for i in range(0, len(group.rows), longest)]
        lengths = [len(rows) for _, rows in segments]
        starts = [sum(lengths[:i]) for i in range(len(lengths) + 1)]
        used = [row for _, rows in segments for row in rows]
        unused = sorted(set(range(problem.tokens)) - set(used))
        self.offsets = batch.numbers(batch.offsets)
        self.info = types.SimpleNamespace(
            use_cuda_graph=False, bs=len(segments), num_segments=len(segments), max_len=longest,
            seg_indptr=batch.numbers(starts), seg_lens=batch.numbers(lengths),
            weight_indices=batch.numbers([adapter for adapter, _ in segments]), lora_ranks=batch.numbers(problem.rank),
            permutation=batch.numbers(used + unused))

    def of(self, step):
        self.info.scalings = _torch.view(step.scale)
        return self.info
