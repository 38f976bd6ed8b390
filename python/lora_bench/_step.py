"""What a backend in Python is given: a problem before a launch, a step in one."""

import ctypes

from . import _interface
from ._tensor import Tensor

_DTYPE_NAMES = {number: name for name, number in _interface.DTYPES.items()}
_OP_NAMES = {number: name for name, number in _interface.OPS.items()}
_SCALE_AT = {
    _interface.CONSTANTS["LORA_BENCH_SCALE_AT_SHRINK"]: "shrink",
    _interface.CONSTANTS["LORA_BENCH_SCALE_AT_EXPAND"]: "expand",
}


class Problem:
    """One step without its addresses: the fields of lora_bench_problem under their names.

    `op`, `scale_at` and the dtypes are words; `widths`, `rank` and the plan
    (`adapter_of_token`, `token_order`, `active_ids`, `group_starts`) are lists on the host.
    """

    def __init__(self, raw):
        self._raw = raw

    def __getattr__(self, name):
        value = getattr(self._raw, name)
        if name == "op":
            return _OP_NAMES[value]
        if name == "scale_at":
            return _SCALE_AT[value]
        if name.endswith("_dtype"):
            return _DTYPE_NAMES[value]
        if name in self._lengths():
            return value[:self._lengths()[name]]
        return value

    def _lengths(self):
        raw = self._raw
        return {
            "widths": raw.slices,
            "rank": raw.slots,
            "adapter_of_token": raw.tokens,
            "token_order": raw.tokens,
            "active_ids": raw.active,
            "group_starts": raw.active + 1,
        }


class Plan:
    """The rows grouped by adapter, as int32 tensors where the operands lie."""

    def __init__(self, tensors):
        self.__dict__.update(tensors)


class Step:
    """One launch: the operands as tensors, the plan, and the stream as an address.

    Lists have an entry for each slice. Numbers and host lists of the problem are attributes too:
    `step.tokens`, `step.max_rank`; `step.problem.rank` is the list, `step.rank` the tensor.
    """

    def __init__(self, problem, operands, stream, device):
        self.problem = problem
        self.stream = stream or 0
        self.device = device
        raw = problem._raw
        rows, slots, rank = raw.tokens, raw.slots, raw.max_rank
        dtype = {name: getattr(problem, name + "_dtype") for name in ("x", "a", "b", "bias", "h", "y")}

        def one(pointer, shape, kind):
            # What is empty has no address, and neither has what the op lacks.
            return Tensor(pointer, shape, kind, device) if pointer or not all(shape) else None

        def each(pointers, shape_of, kind):
            if not pointers:
                return None
            addresses = _addresses(pointers, raw.slices)
            return [one(address, shape_of(width), kind)
                    for address, width in zip(addresses, problem.widths)]

        own = (raw.slices,) if raw.own_inputs else ()
        self.x = one(operands.x, own + (rows, raw.x_stride), dtype["x"])
        self.a = each(operands.a, lambda width: (slots, rank, raw.in_features), dtype["a"])
        self.b = each(operands.b, lambda width: (slots, width, rank), dtype["b"])
        self.bias = each(operands.bias, lambda width: (slots, width), dtype["bias"])
        self.h = one(operands.h, (raw.slices, rows, rank), dtype["h"])
        self.y = one(operands.y, (rows, raw.y_stride), dtype["y"])
        self.workspace = operands.workspace
        self.rank = one(_address(operands.rank), (slots,), "int32")
        self.scale = one(_address(operands.scale), (slots,), "fp32")
        sizes = {"adapter_of_token": rows, "token_order": rows, "active_ids": raw.active,
                 "group_starts": raw.active + 1}
        self.plan = Plan({name: one(_address(getattr(operands, name)), (size,), "int32")
                          for name, size in sizes.items()})

    def __getattr__(self, name):
        return getattr(self.problem, name)


def _address(pointer):
    return ctypes.cast(pointer, ctypes.c_void_p).value


def _addresses(pointers, count):
    return (ctypes.c_void_p * count).from_address(pointers)[:]
