"""Types of tensors over memory of lora-bench."""

from typing import Any, Dict, Literal, Tuple

class Tensor:
    pointer: int
    shape: Tuple[int, ...]
    dtype: Literal["fp32", "fp16", "bf16", "e4m3", "e5m2", "uint16", "uint8", "int32"]
    device: Literal["cuda", "cpu"]
    @property
    def bits(self) -> Tensor: ...
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any: ...
    def __dlpack_device__(self) -> Tuple[int, int]: ...
    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None,
        copy: Any = None,
    ) -> Any: ...
    @property
    def __array_interface__(self) -> Dict[str, Any]: ...
    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]: ...
