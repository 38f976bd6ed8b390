#!/usr/bin/env python3
"""An exported linear case computed with NumPy alone: produce_output.py CASE.safetensors GOT.safetensors"""
import argparse
import json
import sys
from pathlib import Path

USAGE, ENVIRONMENT = 1, 5


def leave(code, text):
    print(f"produce_output.py: {text}", file=sys.stderr)
    sys.exit(code)


try:
    import numpy as np
except ImportError:
    leave(ENVIRONMENT, f"{sys.executable} has no NumPy: {sys.executable} -m pip install numpy, or for the Python of "
                       "Debian and Ubuntu apt-get install python3-numpy")

TYPES = {"BF16": "<u2", "F16": "<f2", "F32": "<f4", "F64": "<f8", "I32": "<i4", "I64": "<i8", "U8": "u1"}


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(USAGE, f"{self.format_usage()}produce_output.py: {message}\n")


def load(path):
    """The tensors of a case and its metadata."""
    raw, t = path.read_bytes(), {}
    case = json.loads(path.with_suffix(".json").read_bytes())
    if case.get("semantics"):
        leave(USAGE, f"{path}: a case of {case['semantics']}; this does plain ops")
    if not (case["shrink"] and case["expand"]):
        leave(USAGE, f"{path}: a case of {case['op']}; this does linear and logits")
    start = 8 + int.from_bytes(raw[:8], "little")
    for name, entry in json.loads(raw[8:start]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            values = np.frombuffer(raw[start + begin:start + end], TYPES[entry["dtype"]])
            values = (values.astype("<u4") << 16).view("<f4") if entry["dtype"] == "BF16" else values
            t[name] = values.reshape(entry["shape"])
    return t, case


parser = Parser(description=__doc__)
parser.add_argument("case", type=Path, metavar="CASE.safetensors", help="as `lora-bench export` wrote it")
parser.add_argument("got", type=Path, metavar="GOT.safetensors", help="for `lora-bench check --output`")
options = parser.parse_args()
try:
    t, case = load(options.case)
except OSError as error:
    leave(USAGE, f"{error.filename}: cannot be read: {error.strerror}; "
                 "`lora-bench export` writes ID.safetensors and ID.json")
except (AttributeError, LookupError, TypeError, ValueError) as error:
    leave(USAGE, f"{options.case}: not what `lora-bench export` wrote, or cut short ({type(error).__name__}: {error})")

y = t["y_before"].astype("<f4")
for token, adapter in enumerate(t["adapter_of_token"]):
    rank, column = t["rank"][adapter] if adapter >= 0 else 0, case["offset_start"]
    for i, width in enumerate(case["widths"] if rank > 0 else []):
        h = t[f"a.{i}"][adapter, :rank] @ t["x"][token, :case["in_features"]] * t["scale"][adapter]
        delta = t[f"b.{i}"][adapter, :, :rank] @ h + (t[f"bias.{i}"][adapter] if f"bias.{i}" in t else 0)
        y[token, column:column + width] = delta + case["add_inputs"] * y[token, column:column + width]
        column += width

header = json.dumps({"output": {"dtype": "F32", "shape": y.shape, "data_offsets": [0, y.nbytes]}}).encode()
try:
    options.got.write_bytes(len(header).to_bytes(8, "little") + header + y.tobytes())
except OSError as error:
    leave(ENVIRONMENT, f"{options.got}: cannot be written: {error.strerror}")
