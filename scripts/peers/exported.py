"""What `lora-bench export` wrote, as docs/export.md lists it, and results for `lora-bench check`."""
import hashlib
import json
import math
from functools import cached_property
from pathlib import Path

import numpy as np

# NumPy has no bfloat16: its bits are kept as integers.
STORED = {"BF16": "<u2", "F16": "<f2", "F32": "<f4", "F64": "<f8", "I32": "<i4", "I64": "<i8", "U8": "u1"}


def widened(stored, kind):
    """As fp32, whatever 16-bit type the file has."""
    if kind == "BF16":
        return (stored.astype("<u4") << 16).view("<f4")
    return stored.astype("<f4" if stored.dtype.kind == "f" else stored.dtype)


def rounded(values, dtype):
    """fp32 values as the nearest ones of another type, in fp32."""
    if dtype == "fp16":
        return values.astype("<f2").astype("<f4")
    if dtype == "bf16":
        bits = np.ascontiguousarray(values, "<f4").view("<u4")
        return ((bits + 0x7fff + (bits >> 16 & 1)) & np.uint32(0xffff0000)).view("<f4")
    return values


def refuse_changed(meta, sealed, name):
    """The metadata beside the tensors says how a peer is launched and timed, that among them what its row will say:
    the two must be of one mind, and `row` as it was sealed."""
    for key in [*meta, *(key for key in sealed if key not in meta)]:
        value, text = meta.get(key), sealed.get(key, "null")
        if value != (text if isinstance(value, str) else json.loads(text)):
            raise ValueError(f"{name} beside it says otherwise of '{key}'")
    seal = hashlib.sha256((sealed["content"] + sealed["row"]).encode()).hexdigest()[:16]
    if sealed.get("row_seal") != seal:
        raise ValueError("'row' of its metadata was changed, or is that of another case")
    if meta["measure"]["cache"] != meta["row"]["cache"]:
        raise ValueError(f"'measure' has the cache '{meta['measure']['cache']}', and 'row', which is sealed, "
                         f"'{meta['row']['cache']}'")


def keys_once(pairs):
    """JSON leaves open which of two values of one key counts."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("its header has a key twice")
    return found


def refuse_untidy(entries):
    """Every byte belongs to one tensor, and every tensor fills its bytes, as `lora-bench check` asks too."""
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
        shape, (begin, after) = entry["shape"], entry["data_offsets"]
        if any(type(number) is not int or number < 0 for number in [*shape, begin, after]):
            raise ValueError(f"'shape' or 'data_offsets' of tensor '{name}' holds what is no whole number from 0 on")
        if begin != end:
            raise ValueError(f"tensor '{name}' begins at byte {begin} of the data, where byte {end} is next")
        if after - begin != math.prod(shape) * np.dtype(STORED[entry["dtype"]]).itemsize:
            raise ValueError(f"tensor '{name}' does not fill its {after - begin} bytes")
        end = after


class Case:
    """One exported case. Tensors are mapped, not read: only what a peer asks for is loaded."""

    def __init__(self, path):
        self.path = Path(path)
        size = self.path.stat().st_size
        with open(self.path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if 8 + length > size:
                raise ValueError("no safetensors file, or cut short")
            self._entries = json.loads(file.read(length), object_pairs_hook=keys_once)
        self._begin = 8 + length
        sealed = self._entries.pop("__metadata__")
        end = self._begin + max(entry["data_offsets"][1] for entry in self._entries.values())
        if end != size:
            raise ValueError(f"it has {size} bytes, not the {end} that its header names")
        refuse_untidy(self._entries)
        beside = self.path.with_suffix(".json")
        try:
            self.meta = json.loads(beside.read_bytes())
        except ValueError as error:
            raise ValueError(f"{beside.name} beside it is no JSON ({error})") from error
        if "row" not in self.meta or "measure" not in self.meta:
            raise ValueError(f"{beside.name} beside it has no 'row' or no 'measure'")
        refuse_changed(self.meta, sealed, beside.name)

    def stored(self, name):
        """The elements as they lie in the file, and their safetensors type."""
        entry = self._entries[name]
        begin, end = entry["data_offsets"]
        kind = np.dtype(STORED[entry["dtype"]])
        if begin == end:
            return np.empty(entry["shape"], kind), entry["dtype"]
        values = np.memmap(self.path, kind, "c", self._begin + begin, ((end - begin) // kind.itemsize,))
        return values.reshape(entry["shape"]), entry["dtype"]

    def numbers(self, name):
        return np.array(self.stored(name)[0])

    id = property(lambda self: self.meta["case"])
    op = property(lambda self: self.meta["op"])
    dtype = property(lambda self: self.meta["dtypes"]["y"])
    tokens = property(lambda self: self.meta["tokens"])
    in_features = property(lambda self: self.meta["in_features"])
    widths = property(lambda self: self.meta["widths"])
    slots = property(lambda self: self.meta["slots"])
    max_rank = property(lambda self: self.meta["max_rank"])
    add_inputs = property(lambda self: self.meta["add_inputs"])
    bias = property(lambda self: any(name.startswith("bias.") for name in self._entries))
    semantics = property(lambda self: self.meta.get("semantics", ""))
    # Whether y is what the product of a base layer left before the op adds to it.
    layer = property(lambda self: self.meta.get("layer", False))

    @property
    def columns(self):
        """The slice of y's columns that the op owns."""
        first = self.meta["offset_start"]
        return slice(first, first + sum(self.widths))

    @property
    def lanes(self):
        """The slice of each product's columns among those of all."""
        ends = np.cumsum([0, *self.widths])
        return [slice(int(ends[i]), int(ends[i + 1])) for i in range(len(self.widths))]

    @cached_property
    def ids(self):
        return self.numbers("adapter_of_token")

    @cached_property
    def rank(self):
        return self.numbers("rank")

    @cached_property
    def scale(self):
        return self.numbers("scale")

    @cached_property
    def groups(self):
        """(adapter, its rows in ascending order) of every adapter that has rows and a rank."""
        order, starts = self.numbers("token_order"), self.numbers("group_starts")
        adapters = self.numbers("active_ids")
        return [(int(adapter), np.sort(order[starts[i]:starts[i + 1]]))
                for i, adapter in enumerate(adapters) if self.rank[adapter] > 0]

    @cached_property
    def one_scale(self):
        """The scale of all adapters in use, or None where they differ."""
        scales = {float(self.scale[adapter]) for adapter, _ in self.groups}
        return scales.pop() if len(scales) == 1 else None if scales else 1.0


def write_results(path, results):
    """For `lora-bench check --output`: tensors by name, each with its safetensors type."""
    header, end = {}, 0
    for name, (values, kind) in results.items():
        header[name] = {"dtype": kind, "shape": list(values.shape), "data_offsets": [end, end + values.nbytes]}
        end += values.nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for values, _ in results.values():
            np.ascontiguousarray(values).tofile(file)
