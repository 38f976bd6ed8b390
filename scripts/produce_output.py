#!/usr/bin/env python3
"""An exported linear case computed with NumPy alone: produce_output.py CASE.safetensors GOT.safetensors"""
import json
import sys

try:
    import numpy as np
except ImportError:
    sys.exit("produce_output.py: needs NumPy (Debian: apt-get install python3-numpy)")

TYPES = {"BF16": "<u2", "F16": "<f2", "F32": "<f4", "F64": "<f8", "I32": "<i4", "I64": "<i8", "U8": "u1"}
raw = open(sys.argv[1], "rb").read()
start = 8 + int.from_bytes(raw[:8], "little")
t, case = {}, json.load(open(sys.argv[1].replace(".safetensors", ".json")))
for name, entry in json.loads(raw[8:start]).items():
    if name != "__metadata__":
        begin, end = entry["data_offsets"]
        values = np.frombuffer(raw[start + begin:start + end], TYPES[entry["dtype"]])
        values = (values.astype("<u4") << 16).view("<f4") if entry["dtype"] == "BF16" else values
        t[name] = values.reshape(entry["shape"])

y = t["y_before"].astype("<f4")
for token, adapter in enumerate(t["adapter_of_token"]):
    rank, column = t["rank"][adapter] if adapter >= 0 else 0, case["offset_start"]
    for i, width in enumerate(case["widths"] if rank > 0 else []):
        h = t[f"a.{i}"][adapter, :rank] @ t["x"][token, :case["in_features"]] * t["scale"][adapter]
        delta = t[f"b.{i}"][adapter, :, :rank] @ h + (t[f"bias.{i}"][adapter] if f"bias.{i}" in t else 0)
        y[token, column:column + width] = delta + case["add_inputs"] * y[token, column:column + width]
        column += width

header = json.dumps({"output": {"dtype": "F32", "shape": y.shape, "data_offsets": [0, y.nbytes]}}).encode()
open(sys.argv[2], "wb").write(len(header).to_bytes(8, "little") + header + y.tobytes())
