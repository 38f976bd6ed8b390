"""What a backend in Python is given: a problem before a launch, a step in one."""

import copy
import ctypes

from . import _interface
from ._tensor import Tensor

_DTYPE_NAMES = {number: name for name, number in _interface.OPERAND_DTYPES.items()}
_WEIGHTS_SCALE = {number: name for name, number in _interface.WEIGHTS_SCALE.items()}
_OP_NAMES = {number: name for name, number in _interface.OPS.items()}
_SCALE_AT = {
    _interface.CONSTANTS["LORA_BENCH_SCALE_AT_SHRINK"]: "shrink",
    _interface.CONSTANTS["LORA_BENCH_SCALE_AT_EXPAND"]: "expand",
}
_FORM_NAMES = {number: name for name, number in _interface.FORMS.items()}
_METADATA_SCALARS = ("tokens", "samples", "requests", "slots", "vocabulary", "extra_vocabulary",
                     "chunk", "most_segments", "idle_segments", "experts", "top_k", "block", "most_pairs")
# Lists of a problem, and how many entries each has.
_LISTS = {
    "widths": lambda raw: raw.slices,
    "rank": lambda raw: raw.slots,
    "adapter_of_token": lambda raw: raw.tokens,
    "token_order": lambda raw: raw.tokens,
    "active_ids": lambda raw: raw.active,
    "group_starts": lambda raw: raw.active + 1,
}
_SCALARS = [name for name, _ in _interface.Problem._fields_ if name not in _LISTS]


def content_of(raw):
    """Returns what tells one problem from another, wherever its lists lie."""
    lists = [(getattr(raw, name), size(raw)) for name, size in _LISTS.items()]
    return (tuple(getattr(raw, name) for name in _SCALARS),
            *(ctypes.string_at(values, ctypes.sizeof(values._type_) * count)
              for values, count in lists))


class Problem:
    """One step without its addresses: the fields of lora_bench_problem under their names.

    `op`, `scale_at`, `weights_scale` and the dtypes are words; `widths`, `rank` and the plan
    (`adapter_of_token`, `token_order`, `active_ids`, `group_starts`) are lists on the host.
    Steps of the same batch have the same object.
    """

    def __init__(self, raw):
        for name in _SCALARS:
            setattr(self, name, getattr(raw, name))
        for name, size in _LISTS.items():
            setattr(self, name, getattr(raw, name)[:size(raw)])
        self.op = _OP_NAMES[self.op]
        self.scale_at = _SCALE_AT[self.scale_at]
        self.weights_scale = _WEIGHTS_SCALE[self.weights_scale]
        for name in _SCALARS:
            if name.endswith("_dtype"):
                setattr(self, name, _DTYPE_NAMES[getattr(self, name)])
        self._made = {}

    def without_plan(self):
        """Returns the same problem where no row has an adapter: what weights are prepared for."""
        if not self.active:
            return self
        other = copy.copy(self)
        other.adapter_of_token, other.token_order = [-1] * self.tokens, list(range(self.tokens))
        other.active_ids, other.group_starts = [], [0]
        other.active = other.rows_with_adapter = 0
        other._made = {}
        return other

    def once(self, function):
        """Returns what function(problem) returned the first time: what a batch needs beside its
        operands, as an index that is made on the host, and kept as long as graphs may read it."""
        if function not in self._made:
            self._made[function] = function(self)
        return self._made[function]


class MetadataStep:
    """One step of op metadata: the fields of lora_bench_metadata under their names.

    `form` is a word. `inputs` and `outputs` hold the arrays of docs/plan.md by name, as tensors;
    where a backend is asked what it supports they are None.
    """

    def __init__(self, raw, stream, device):
        self.form = _FORM_NAMES[raw.form]
        for name in _METADATA_SCALARS:
            setattr(self, name, getattr(raw, name))
        self.stream = stream or 0
        self.device = device
        self.inputs = _arrays(raw.inputs, raw.input_arrays, raw.input_count, device)
        self.outputs = _arrays(raw.outputs, raw.output_arrays, raw.output_count, device)


def _arrays(addresses, arrays, count, device):
    if not addresses:
        return None
    found = {}
    for address, array in zip(addresses_at(addresses, count),
                              (_interface.Array * count).from_address(arrays)):
        kind = "fp32" if array.is_float else f"int{8 * array.element_bytes}"
        found[array.name.decode()] = Tensor(address, (array.elements,), kind, device)
    return found


_QUANTISE_SCALARS = ("multiply", "power_of_two", "scales_given", "least_amax", "least_scale", "rows", "columns",
                     "x_stride", "scale_rows", "scale_columns", "group")


class QuantiseStep:
    """One step of op quantise: the fields of lora_bench_quantise under their names.

    `x_dtype` and `q_dtype` are words. `x` [rows, x_stride], `q` [rows, columns] and the scales
    [scale_rows, scale_columns] are tensors, None where a backend is asked what it supports; of
    `x_scale` and `q_scale` one is there, as `scales_given` says.
    """

    def __init__(self, raw, stream, device):
        for name in _QUANTISE_SCALARS:
            setattr(self, name, getattr(raw, name))
        self.x_dtype = _DTYPE_NAMES[raw.x_dtype]
        self.q_dtype = _DTYPE_NAMES[raw.q_dtype]
        self.stream = stream or 0
        self.device = device
        scales = (raw.scale_rows, raw.scale_columns)

        def tensor(pointer, shape, dtype):
            address = ctypes.cast(pointer, ctypes.c_void_p).value
            return Tensor(address, shape, dtype, device) if address else None

        self.x = tensor(raw.x, (raw.rows, raw.x_stride), self.x_dtype)
        self.x_scale = tensor(raw.x_scale, scales, "fp32")
        self.q = tensor(raw.q, (raw.rows, raw.columns), self.q_dtype)
        self.q_scale = tensor(raw.q_scale, scales, "fp32")


class Plan:
    """The rows grouped by adapter, as int32 tensors where the operands lie."""

    def __init__(self, tensors):
        self.__dict__.update(tensors)


class Step:
    """One launch: the operands as tensors, the plan, and the stream as an address.

    Lists have an entry for each slice. Numbers and host lists of the problem are attributes too:
    `step.tokens`, `step.max_rank`; `step.problem.rank` is the list, `step.rank` the tensor.
    """

    def __init__(self, problem, operands, stream, device, prepared_bytes=0):
        self.problem = problem
        self.stream = stream or 0
        self.device = device
        rows, slots, rank = problem.tokens, problem.slots, problem.max_rank

        def one(pointer, shape, kind):
            # What is empty has no address, and neither has what the op lacks.
            return Tensor(pointer, shape, kind, device) if pointer or not all(shape) else None

        def each(pointers, shape_of, kind):
            if not pointers:
                return None
            addresses = addresses_at(pointers, problem.slices)
            return [one(address, shape_of(width), kind)
                    for address, width in zip(addresses, problem.widths)]

        own = (problem.slices,) if problem.own_inputs else ()
        self.x = one(operands.x, own + (problem.x_rows, problem.x_stride), problem.x_dtype)
        self.x_scale = one(operands.x_scale, own + (problem.x_scale_rows, problem.x_scale_columns),
                           "fp32") if problem.x_scale_rows else None
        self.a = each(operands.a, lambda width: (slots, rank, problem.in_features), problem.a_dtype)
        self.b = each(operands.b, lambda width: (slots, width, rank), problem.b_dtype)
        self.bias = each(operands.bias, lambda width: (slots, width), problem.bias_dtype)

        def scales(rows_of, columns):
            def shape(width):
                count = rows_of(width)
                return (slots, _blocks(count, problem.block_rows),
                        _blocks(columns, problem.block_columns))
            return shape

        self.a_scale = each(operands.a_scale, scales(lambda width: rank, problem.in_features),
                            "fp32")
        self.b_scale = each(operands.b_scale, scales(lambda width: width, rank), "fp32")
        self.h = one(operands.h, (problem.slices, rows, rank), problem.h_dtype)
        self.h_scale = one(operands.h_scale,
                           (problem.slices, problem.h_scale_rows, problem.h_scale_columns),
                           "fp32") if problem.h_scale_rows else None
        self.y = one(operands.y, (rows, problem.y_stride), problem.y_dtype)
        self.workspace = operands.workspace
        self.prepared = one(operands.prepared, (prepared_bytes,), "uint8")
        self.rank = one(_address(operands.rank), (slots,), "int32")
        self.scale = one(_address(operands.scale), (slots,), "fp32")
        self.token_of_row = one(_address(operands.token_of_row), (rows,),
                                "int32") if problem.shares_x else None
        self.factor = one(_address(operands.factor), (rows,),
                          "fp32") if problem.has_factors else None
        sizes = {"adapter_of_token": rows, "token_order": rows, "active_ids": problem.active,
                 "group_starts": problem.active + 1}
        self.plan = Plan({name: one(_address(getattr(operands, name)), (size,), "int32")
                          for name, size in sizes.items()})

    def __getattr__(self, name):
        return getattr(self.problem, name)


def _blocks(count, of_block):
    """Returns how many blocks there are of so many; 0 is one block of all."""
    return -(-count // (of_block or max(count, 1)))


def _address(pointer):
    return ctypes.cast(pointer, ctypes.c_void_p).value


def addresses_at(pointers, count):
    """Returns the addresses in an array of so many; of NULL none."""
    return (ctypes.c_void_p * count).from_address(pointers)[:] if pointers else []
