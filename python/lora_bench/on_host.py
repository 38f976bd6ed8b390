"""What a kernel on a host needs of NumPy, which has neither bf16 nor numbers of eight bits."""

import numpy as np

# Of the functions below: NaN stays NaN through a conversion, and so NumPy has nothing to warn of.
_quiet = np.errstate(invalid="ignore", over="ignore")


def memory_of(tensor):
    """The tensor as an array over the same memory: of bf16 and of eight bits its bits."""
    return np.asarray(tensor.bits if tensor.dtype in ("bf16", "e4m3", "e5m2") else tensor)


@_quiet
def numbers(memory):
    """The numbers of such an array, in fp32."""
    if memory.dtype == np.uint16:
        return (memory.astype(np.uint32) << 16).view(np.float32)
    return memory.astype(np.float32)


@_quiet
def stored(values, dtype):
    """What such an array holds for fp32 values: rounded to the nearest, ties to even."""
    if dtype != np.uint16:
        return values.astype(dtype)
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(values), 0x7FC0, rounded).astype(np.uint16)


@_quiet
def _every_number_of(dtype):
    codes = np.arange(256, dtype=np.uint32)
    if dtype == "e5m2":  # the upper half of fp16
        return (codes << 8).astype(np.uint16).view(np.float16).astype(np.float32)
    magnitude = codes & 0x7F
    values = (magnitude << 20).view(np.float32) * np.float32(2.0**120)
    values[magnitude == 0x7F] = np.nan
    return np.where(codes >= 0x80, -values, values)


_EIGHT_BITS = {dtype: _every_number_of(dtype) for dtype in ("e4m3", "e5m2")}


@_quiet
def codes_of(values, dtype):
    """The codes of eight bits that are nearest to fp32 values, at a tie the even one; no number is
    taken for more than the largest, and NaN stays NaN."""
    positive = _EIGHT_BITS[dtype][:128]
    finite = positive[np.isfinite(positive)].astype(np.float64)
    magnitude = np.minimum(np.abs(values.astype(np.float64)), finite[-1])
    middles = (finite[1:] + finite[:-1]) / 2
    codes = np.searchsorted(middles, magnitude)
    at_tie = middles[np.minimum(codes, len(middles) - 1)] == magnitude
    codes = np.where(np.isnan(values), 0x7F, codes + (at_tie & (codes % 2 == 1)))
    return (codes | (np.signbit(values) << 7)).astype(np.uint8)


def weights_of(step, name, i, slot):
    """A ("a") or B ("b") of a slice and a slot in fp32, times the scales where there are any: a
    lane of A or an output of B a row. Lanes at or above the rank are NaN."""
    tensor, scales = getattr(step, name)[i], getattr(step, name + "_scale")
    memory = memory_of(tensor)[slot]
    if scales is None:
        return numbers(memory)
    values = _EIGHT_BITS[tensor.dtype][memory]
    rows, columns = values.shape
    down = np.arange(rows) // (step.block_rows or rows)
    across = np.arange(columns) // (step.block_columns or columns)
    return values * np.asarray(scales[i])[slot][down][:, across]


def x_of(step, i=0):
    """The x of a slice in fp32, times its scales where there are any: a token a row. Rows without
    an adapter may be NaN."""
    memory = memory_of(step.x)
    scales = None if step.x_scale is None else np.asarray(step.x_scale)
    if memory.ndim == 3:  # an x of its own for each slice
        memory, scales = memory[i], None if scales is None else scales[i]
    memory = memory[:, :step.in_features]
    if scales is None:
        return numbers(memory)
    return _times_scales(step.x.dtype, memory, scales, step.x_group)


def h_of(step, i):
    """The h of a slice that op expand is given, in fp32, times its scales where there are any: a
    token a row, lanes that lie apart. Lanes at or above a rank are NaN."""
    memory = memory_of(step.h)[i]
    if step.h_scale is None:
        return numbers(memory)
    return _times_scales(step.h.dtype, memory, np.asarray(step.h_scale)[i], step.h_group)


@_quiet
def scales_for(amax, dtype, least_amax, least_scale, power_of_two):
    """The scales in fp32 of numbers of which these are the largest magnitudes."""
    limit = np.float32({"e4m3": 448, "e5m2": 57344}[dtype])
    scale = np.fmax(np.fmax(amax, np.float32(least_amax)) / limit, np.float32(least_scale))
    if not power_of_two:
        return scale
    bits = scale.view(np.uint32)  # a fraction, where there is one, carries into the exponent
    return ((bits + np.uint32(0x7FFFFF)) & np.uint32(0xFF800000)).view(np.float32)


@_quiet
def quantised(step, h):
    """The h of a slice, a token a row up to the rank, as a step that quantises h takes it in the
    second sum: each lane its code times the scale of its group."""
    result = np.empty_like(h)
    rank = h.shape[1]
    for first in range(0, rank, step.h_group or max(rank, 1)):
        lanes = np.s_[:, first:first + (step.h_group or rank)]
        amax = np.fmax.reduce(np.abs(h[lanes]), axis=1, keepdims=True)
        scale = scales_for(amax, step.h_code_dtype, step.h_least_amax, step.h_least_scale,
                           step.h_power_of_two)
        values = h[lanes] * (np.float32(1) / scale) if step.h_multiply else h[lanes] / scale
        result[lanes] = _EIGHT_BITS[step.h_code_dtype][codes_of(values, step.h_code_dtype)] * scale
    return result


def _times_scales(dtype, memory, scales, group):
    """The numbers of rows of eight bits, each times the scale of its group; 0: one of a row."""
    columns = memory.shape[1]
    groups = np.arange(columns) // (group or max(columns, 1))
    return _EIGHT_BITS[dtype][memory] * scales[:, groups]
