"""A complete CUDA kernel for lora-bench in Triton.

`lora-bench run smoke --backends ./triton_linear.py`; docs/python.md says what a step has.
"""

import lora_bench
import torch
import triton
import triton.language as tl


@triton.jit
def shrink(h, x, a, adapters, ranks, scales, K, x_stride, MAX_RANK: tl.constexpr,
           LANES: tl.constexpr, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    adapter = tl.load(adapters + token).to(tl.int64)
    rank = tl.load(ranks + adapter, mask=adapter >= 0, other=0)
    lane = tl.arange(0, LANES)
    total = tl.zeros([LANES], tl.float32)
    for begin in range(0, tl.where(rank > 0, K, 0), BLOCK):
        k = begin + tl.arange(0, BLOCK)
        inputs = tl.load(x + token * x_stride + k, mask=k < K, other=0).to(tl.float32)
        row = (adapter * MAX_RANK + lane[:, None]) * K
        owned = (lane[:, None] < rank) & (k[None, :] < K)  # what lies above the rank is NaN
        weights = tl.load(a + row + k[None, :], mask=owned, other=0).to(tl.float32)
        total += tl.sum(weights * inputs[None, :], axis=1)
    scale = tl.load(scales + adapter, mask=rank > 0, other=0)
    tl.store(h + token * MAX_RANK + lane, total * scale, mask=lane < rank)


@triton.jit
def expand(y, h, b, adapters, ranks, N, y_stride, ADD: tl.constexpr, MAX_RANK: tl.constexpr,
           LANES: tl.constexpr, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    adapter = tl.load(adapters + token).to(tl.int64)
    rank = tl.load(ranks + adapter, mask=adapter >= 0, other=0)
    lane = tl.arange(0, LANES)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    owned = (n < N) & (rank > 0)
    hidden = tl.load(h + token * MAX_RANK + lane, mask=lane < rank, other=0).to(tl.float32)
    row = (adapter * N + n[:, None]) * MAX_RANK
    weights = tl.load(b + row + lane[None, :], mask=owned[:, None] & (lane[None, :] < rank), other=0)
    delta = tl.sum(weights.to(tl.float32) * hidden[None, :], axis=1)
    place = y + token * y_stride + n
    if ADD:
        delta += tl.load(place, mask=owned, other=0).to(tl.float32)
    tl.store(place, delta, mask=owned)


def what_it_does(problem):
    if problem.has_bias:
        return "adds no bias"
    return None if problem.scale_at == "shrink" else "scales in shrink alone"


@lora_bench.backend(device="cuda", supports=what_it_does)
def linear(step):
    x, h, y = (torch.from_dlpack(one) for one in (step.x, step.h, step.y))
    adapters = torch.from_dlpack(step.plan.adapter_of_token)
    ranks, scales = torch.from_dlpack(step.rank), torch.from_dlpack(step.scale)
    lanes, block = triton.next_power_of_2(step.max_rank), 256
    column = step.offset_start
    for i, width in enumerate(step.widths):
        if width > 0:
            shrink[(step.tokens,)](h[i], x, torch.from_dlpack(step.a[i]), adapters, ranks, scales,
                                   step.in_features, step.x_stride, step.max_rank, lanes, block)
            expand[(step.tokens, triton.cdiv(width, block))](
                y[:, column:], h[i], torch.from_dlpack(step.b[i]), adapters, ranks, width,
                step.y_stride, step.add_inputs, step.max_rank, lanes, block)
        column += width
