"""The structs and constants of include/lora_bench_backend.h, read from the header itself.

A field that is appended there is one here without further ado. Function pointers are left out: the
descriptor is built in _door.py.
"""

import ctypes
import pathlib
import re

_SCALARS = {
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "char": ctypes.c_char,
}
_FIELD = re.compile(r"^(?:const\s+)?(\w+)\s*((?:\*\s*(?:const\s*)?)*)(\w+)(?:\[(\d+)\])?$")


def _header_text():
    here = pathlib.Path(__file__).resolve().parent
    for folder in (here, here.parent.parent / "include"):
        header = folder / "lora_bench_backend.h"
        if header.is_file():
            return re.sub(r"/\*.*?\*/", "", header.read_text(encoding="utf-8"), flags=re.DOTALL)
    raise ImportError(f"lora_bench_backend.h lies neither in {here} nor in the folder include")


def _type_of(text):
    base, stars, name, count = _FIELD.match(text).groups()
    if base == "char" and stars.count("*") == 1:
        return name, ctypes.c_char_p
    if stars.strip():
        pointed = _SCALARS.get(base)
        return name, ctypes.POINTER(pointed) if pointed and stars.count("*") == 1 else ctypes.c_void_p
    return name, _SCALARS[base] * int(count) if count else _SCALARS[base]


def _struct(text, name):
    body = re.search(rf"typedef struct {name} \{{(.*?)\}} {name};", text, re.DOTALL).group(1)
    fields = [" ".join(line.split()) for line in body.split(";") if line.strip()]
    return type(name, (ctypes.Structure,), {"_fields_": [_type_of(field) for field in fields]})


def _constants(text):
    found = {}
    for body in re.findall(r"enum \{(.*?)\};", text, re.DOTALL):
        for name, value in re.findall(r"(LORA_BENCH_\w+) = ([\d< ]+)", body):
            number, _, shift = value.partition("<<")
            found[name] = int(number) << int(shift or 0)
    return found


_TEXT = _header_text()
ABI = int(re.search(r"#define LORA_BENCH_BACKEND_ABI (\d+)", _TEXT).group(1))
CONSTANTS = _constants(_TEXT)
Problem = _struct(_TEXT, "lora_bench_problem")
Operands = _struct(_TEXT, "lora_bench_operands")
Numerics = _struct(_TEXT, "lora_bench_numerics")
Array = _struct(_TEXT, "lora_bench_array")
Metadata = _struct(_TEXT, "lora_bench_metadata")
Quantise = _struct(_TEXT, "lora_bench_quantise")
Device = _struct(_TEXT, "lora_bench_device")


def choices(prefix):
    """Returns the constants that begin with `prefix`, by the rest of their name in lower case."""
    return {
        name[len(prefix):].lower(): value
        for name, value in CONSTANTS.items()
        if name.startswith(prefix)
    }


DTYPES = {name: CONSTANTS["LORA_BENCH_" + name.upper()] for name in ("fp32", "bf16", "fp16")}
# Those of x, A and B, of which nothing else is stored.
OPERAND_DTYPES = {**DTYPES, **{name: CONSTANTS["LORA_BENCH_" + name.upper()] for name in ("e4m3", "e5m2")}}
WEIGHTS_SCALE = {
    "none": CONSTANTS["LORA_BENCH_WEIGHTS_UNSCALED"],
    **choices("LORA_BENCH_WEIGHTS_BY_"),
}
OPS = {
    name: CONSTANTS["LORA_BENCH_" + name.upper()]
    for name in ("shrink", "expand", "linear", "embedding", "logits")
}
FORMS = choices("LORA_BENCH_FORM_")
# The ops that no problem has, for their steps are of other kinds.
METADATA, QUANTISE = "metadata", "quantise"
TAKES = {**choices("LORA_BENCH_TAKES_"), "reads_padding": CONSTANTS["LORA_BENCH_READS_PADDING"]}
BIAS_ADDED = choices("LORA_BENCH_BIAS_")
SPACES = {"cpu": CONSTANTS["LORA_BENCH_HOST"], "cuda": CONSTANTS["LORA_BENCH_CUDA"]}
