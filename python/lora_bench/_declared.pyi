"""Types of what a file of Python declares; tests/python/api_test.py holds the names."""

from typing import Callable, Iterable, Literal, TypeVar, Union, overload

from ._step import MetadataStep, Problem, Step

_Launch = TypeVar("_Launch", Callable[[Step], object], Callable[[MetadataStep], object])
_Dtype = Literal["fp32", "bf16", "fp16"]
_Bool = Union[bool, Callable[[Problem], bool]]
_Count = Union[int, Callable[[Problem], int]]
_Real = Union[float, Callable[[Problem], float]]
_DtypeOf = Union[_Dtype, Callable[[Problem], _Dtype]]
_BiasAdded = Literal["with_delta", "before", "after"]

@overload
def backend(function: _Launch) -> _Launch: ...
@overload
def backend(
    function: None = None,
    *,
    device: Literal["cuda", "cpu"] = "cuda",
    takes: Iterable[str] = (),
    supports: Union[
        Callable[[Problem], Union[str, None]], Callable[[MetadataStep], Union[str, None]], None
    ] = None,
    workspace_bytes: Union[int, Callable[[Problem], int], None] = None,
    prepare: Union[Callable[[Step], object], None] = None,
    prepared_bytes: Union[int, Callable[[Problem], int], None] = None,
    versions: Iterable[str] = (),
    partial: _DtypeOf = ...,
    intermediate: _DtypeOf = ...,
    unit_roundoff: _Real = ...,
    shrink_depth: _Count = ...,
    expand_depth: _Count = ...,
    partials: _Count = ...,
    rounds_delta: _Bool = ...,
    deterministic: _Bool = ...,
    batch_invariant: _Bool = ...,
    graph_safe: _Bool = ...,
    casts_h: _Bool = ...,
    replays_other_batches: _Bool = ...,
    bias_added: Union[_BiasAdded, Callable[[Problem], _BiasAdded]] = ...,
    summation: Union[str, Callable[[Problem], str]] = ...,
) -> Callable[[_Launch], _Launch]: ...
