"""What the peers made of PyTorch share: views of a step, weights in a layout of their own, batches."""

import contextlib
import math

from lora_bench import peers
from lora_bench.peers._batch import columns_of, groups_of

try:
    import torch
except ImportError as error:
    torch, why_no_torch = None, str(error)
else:
    # Its default lets cuBLAS add parts of K in bf16, which no bound for fp32 sums allows.
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False

_ALIGNMENT = 256  # bytes, as an allocator of PyTorch aligns


def has_gpu():
    return torch is not None and torch.cuda.is_available()


def gpu_name():
    return torch.cuda.get_device_name() if has_gpu() else "cpu"


def load():
    if torch is None:
        raise peers.Missing(f"no module torch ({why_no_torch}): pip install torch")
    return f"torch {torch.__version__}"


def view(tensor):
    return torch.from_dlpack(tensor)


def dtype_of(problem):
    return {"bf16": torch.bfloat16, "fp16": torch.float16}[problem.x_dtype]


def supports_expand(problem):
    if problem.has_bias:
        return "adds no bias"
    if problem.y_dtype == "fp32":
        return "is for 16-bit numbers"
    if not problem.add_inputs:
        return "adds to y, as a layer does; add_inputs is false here"
    if 0 in problem.widths:
        return "takes no slice of width 0"
    return None


def supports(problem):
    if problem.x_dtype == "fp16" and (problem.h_dtype != "fp16" or problem.scale_at == "shrink"):
        return "keeps h in fp16 and scales behind that: it may overflow (--set intermediate=fp16 --set scale_at=expand)"
    return supports_expand(problem)


def supports_shrink(problem):
    return "is for 16-bit numbers" if problem.x_dtype == "fp32" else None


def wants_no_gaps(problem):
    """Of kernels that ask for an x without padding between its rows, as an engine has it."""
    return None if problem.x_stride == problem.in_features else "takes no x with gaps between its rows"


def wants_eights(problem):
    sizes = [problem.in_features, problem.max_rank, *problem.widths]
    return "wants K, N and rank in multiples of 8" if any(size % 8 for size in sizes) else None


def steps_of_tensor_cores(problem):
    """Depths of the sums of kernels that add 16 products a step on tensor cores and at most 64 parts of K after that."""
    return {"shrink_depth": min(problem.in_features, problem.in_features // 8 + 128),
            "expand_depth": min(problem.max_rank + 2, problem.max_rank // 8 + 32)}


def declared(known_order=True, scaled_b=False, **more):
    """Numerics of a peer that stores the sum over K in 16 bits and scales behind that. `known_order`: see
    steps_of_tensor_cores. `scaled_b`: B is multiplied by the scale before it is rounded to 16 bits, which as far as a
    bound can tell is one more rounding of h."""
    def partial(problem):
        as_asked = problem.h_dtype != "fp32" and problem.scale_at == "expand" and not scaled_b
        return "fp32" if as_asked else problem.x_dtype

    numerics = {"intermediate": lambda problem: problem.x_dtype, "partial": partial, "casts_h": scaled_b,
                "rounds_delta": True, "batch_invariant": False, "unit_roundoff": 2.0**-23}
    if known_order:
        for name in ("shrink_depth", "expand_depth"):
            numerics[name] = lambda problem, name=name: steps_of_tensor_cores(problem)[name]
    return {**numerics, **more}


class Layout:
    """Tensors of 16-bit numbers side by side in the memory of step.prepared."""

    def __init__(self, shapes):
        self.shapes, self.begins, end = shapes, [], 0
        for shape in shapes:
            self.begins.append(end)
            end += (2 * math.prod(shape) + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT
        self.bytes = max(end, _ALIGNMENT)

    def views(self, step):
        memory = view(step.prepared)
        return [memory[begin:begin + 2 * math.prod(shape)].view(dtype_of(step.problem)).view(shape)
                for begin, shape in zip(self.begins, self.shapes)]


def separate(problem):
    """A and B of each slice for itself, as vLLM keeps them."""
    return Layout([(problem.slots, problem.max_rank, problem.in_features)] * problem.slices
                  + [(problem.slots, width, problem.max_rank) for width in problem.widths])


def packed(problem):
    """A of all slices in one tensor, B in another, as SGLang keeps them."""
    return Layout([(problem.slots, problem.slices * problem.max_rank, problem.in_features),
                   (problem.slots, sum(problem.widths), problem.max_rank)])


def packed_a(problem):
    """A of all slices in one tensor, B of each slice for itself."""
    return Layout(packed(problem).shapes[:1] + separate(problem).shapes[problem.slices:])


class Batch:
    """What a batch needs on its device, made once: `step.problem.once(Batch)`."""

    def __init__(self, problem):
        self.device = "cuda" if has_gpu() else "cpu"
        self.groups = groups_of(problem)
        self.offsets = columns_of(problem)
        self.rows = self.numbers([row for group in self.groups for row in group.rows], torch.int64)
        self.adapters = self.numbers([group.adapter for group in self.groups for _ in group.rows], torch.int64)
        lanes = torch.arange(problem.max_rank)[None, :] < torch.tensor(problem.rank)[:, None]
        self.owned = lanes.to(self.device)  # [slots, max_rank]
        self.nothing = torch.zeros((), dtype=dtype_of(problem), device=self.device)
        self.slots_of_rank = {rank: self.numbers([slot for slot, own in enumerate(problem.rank) if own == rank], torch.int64)
                              for rank in set(problem.rank) - {0}}
        self.pool = torch.cuda.MemPool() if has_gpu() else None

    def numbers(self, values, dtype=None):
        return torch.tensor(values, dtype=dtype or torch.int32).to(self.device)

    def memory(self):
        """What is allocated in it is of this batch alone: a graph that was recorded may be run while others allocate."""
        return torch.cuda.use_mem_pool(self.pool) if self.pool else contextlib.nullcontext()


def x_of(step):
    return view(step.x)[:, :step.in_features]


def y_of(step):
    """The columns that slices own."""
    return view(step.y)[:, step.offset_start:step.offset_start + sum(step.widths)]


def put_a(step, batch, out, first, lanes_apart):
    """A of all slices into lanes `first`, `first + max_rank`, ... of `out`, zeros above a rank. Where `lanes_apart` is
    false, the slices of an adapter follow one another at its rank."""
    if not lanes_apart:
        out.zero_()
    for i, a in enumerate(view(one) for one in step.a):
        if lanes_apart:
            place = out[:, first + i * step.max_rank:first + (i + 1) * step.max_rank]
            torch.where(batch.owned[:, :, None], a, batch.nothing, out=place)
            continue
        for rank, slots in batch.slots_of_rank.items():
            out[slots, i * rank:(i + 1) * rank] = a.index_select(0, slots)[:, :rank]


def put_b(step, batch, outs, scaled):
    """B of each slice into one of `outs`, zeros above a rank."""
    for b, out in zip((view(one) for one in step.b), outs):
        torch.where(batch.owned[:, None, :], b, batch.nothing, out=out)
        if scaled:
            out.mul_(view(step.scale)[:, None, None])


def prepare_packed(step, scaled, lanes_apart=True):
    batch = step.problem.once(Batch)
    a, b = packed(step.problem).views(step)
    put_a(step, batch, a, 0, lanes_apart)
    put_b(step, batch, [b[:, begin:end] for begin, end in zip(batch.offsets, batch.offsets[1:])], scaled)


def prepare_packed_a(step):
    batch = step.problem.once(Batch)
    a, *b = packed_a(step.problem).views(step)
    put_a(step, batch, a, 0, True)
    put_b(step, batch, b, True)


def prepare_separate(step, has_a=True, has_b=True, scaled=True):
    batch = step.problem.once(Batch)
    views = separate(step.problem).views(step)
    for i, out in enumerate(views[:step.slices] if has_a else []):
        torch.where(batch.owned[:, :, None], view(step.a[i]), batch.nothing, out=out)
    if has_b:
        put_b(step, batch, views[step.slices:], scaled)
