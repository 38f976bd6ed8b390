"""Types of a problem and a step; tests/python/api_test.py holds the names to the header."""

from typing import Callable, Dict, List, Literal, Optional, TypeVar

from ._tensor import Tensor

_Dtype = Literal["fp32", "bf16", "fp16"]
_NarrowDtype = Literal["fp32", "bf16", "fp16", "e4m3", "e5m2"]
_Made = TypeVar("_Made")

class _Fields:
    op: Literal["shrink", "expand", "linear", "embedding", "logits"]
    scale_at: Literal["shrink", "expand"]
    x_dtype: _NarrowDtype
    a_dtype: _NarrowDtype
    b_dtype: _NarrowDtype
    bias_dtype: _Dtype
    h_dtype: _Dtype
    y_dtype: _Dtype
    widths: List[int]
    add_inputs: int
    has_bias: int
    tokens: int
    in_features: int
    offset_start: int
    x_stride: int
    y_stride: int
    slots: int
    max_rank: int
    slices: int
    active: int
    rows_with_adapter: int
    zeroes_idle_rows: int
    adds_to_h: int
    rank0_bias: int
    own_inputs: int
    plan_form: int
    idle_segments: int
    groups: int
    chunk: int
    placing: int
    x_column_stride: int
    a_stride: int
    b_stride: int
    h_stride: int
    weights_scale: Literal["none", "tensor", "channel", "block"]
    block_rows: int
    block_columns: int
    x_scale_rows: int
    x_scale_columns: int
    x_group: int
    h_scale_rows: int
    h_scale_columns: int
    h_group: int
    quantises_h: int
    h_code_dtype: Literal["fp32", "e4m3", "e5m2"]
    h_multiply: int
    h_power_of_two: int
    h_least_amax: float
    h_least_scale: float
    experts: int
    choices: int
    x_rows: int
    shares_x: int
    has_factors: int

class Problem(_Fields):
    rank: List[int]
    adapter_of_token: List[int]
    token_order: List[int]
    active_ids: List[int]
    group_starts: List[int]
    def once(self, function: Callable[["Problem"], _Made]) -> _Made: ...

class MetadataStep:
    form: Literal["kernel", "prefill", "sampler", "embedding", "chunked", "align"]
    tokens: int
    samples: int
    requests: int
    slots: int
    vocabulary: int
    extra_vocabulary: int
    chunk: int
    most_segments: int
    idle_segments: int
    experts: int
    top_k: int
    block: int
    most_pairs: int
    stream: int
    device: Literal["cuda", "cpu"]
    # None where a backend is asked what it supports.
    inputs: Dict[str, Tensor]
    outputs: Dict[str, Tensor]

class QuantiseStep:
    x_dtype: Literal["fp32", "bf16", "fp16"]
    q_dtype: Literal["e4m3", "e5m2"]
    multiply: int
    power_of_two: int
    scales_given: int
    least_amax: float
    least_scale: float
    rows: int
    columns: int
    x_stride: int
    scale_rows: int
    scale_columns: int
    group: int
    stream: int
    device: Literal["cuda", "cpu"]
    # None where a backend is asked what it supports.
    x: Tensor
    q: Tensor
    x_scale: Optional[Tensor]
    q_scale: Optional[Tensor]

class Plan:
    adapter_of_token: Tensor
    token_order: Tensor
    active_ids: Tensor
    group_starts: Tensor

class Step(_Fields):
    problem: Problem
    stream: int
    device: Literal["cuda", "cpu"]
    # None where the op has none; a checker is not to ask of each.
    x: Tensor
    h: Tensor
    y: Tensor
    a: List[Tensor]
    b: List[Tensor]
    bias: Optional[List[Tensor]]
    x_scale: Optional[Tensor]
    h_scale: Optional[Tensor]
    token_of_row: Optional[Tensor]
    factor: Optional[Tensor]
    a_scale: Optional[List[Tensor]]
    b_scale: Optional[List[Tensor]]
    workspace: Optional[int]
    prepared: Optional[Tensor]
    rank: Tensor
    scale: Tensor
    plan: Plan
