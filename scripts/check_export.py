#!/usr/bin/env python3
"""Recompute an exported case in fp64 with NumPy alone: check_export.py CASE.safetensors"""
import json
import sys

try:
    import numpy as np
except ImportError:
    sys.exit("check_export.py: needs NumPy (Debian: apt-get install python3-numpy)")

TYPES = {"BF16": "<u2", "F16": "<f2", "F32": "<f4", "F64": "<f8", "I32": "<i4", "I64": "<i8", "U8": "u1"}


def load(path):
    raw = open(path, "rb").read()
    start = 8 + int.from_bytes(raw[:8], "little")
    tensors = {}
    for name, entry in json.loads(raw[8:start]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            values = np.frombuffer(raw[start + begin:start + end], TYPES[entry["dtype"]])
            if entry["dtype"] == "BF16":
                values = (values.astype("<u4") << 16).view("<f4")
            values = values.astype("f8") if values.dtype.kind == "f" else values
            tensors[name] = values.reshape(entry["shape"])
    return tensors


t, case = load(sys.argv[1]), json.load(open(sys.argv[1].replace(".safetensors", ".json")))
worst_oracle, worst_output = 0.0, 0.0
for row, token in enumerate(t["rows"]):
    adapter, column = t["adapter_of_token"][token], case["offset_start"]
    rank = t["rank"][adapter] if adapter >= 0 else 0
    want, got = np.zeros((2, t["expected"].shape[1]))
    if case["expand"]:
        want[:], got[:] = t["y_before"][token], t["output"][token]
    for i, width in enumerate(case["widths"] if rank > 0 else []):
        lane, end = i * case["max_rank"], column + width
        h = t["h"][i, token, :rank] if "h" in t else t[f"a.{i}"][adapter, :rank] @ t["x"][token, :case["in_features"]]
        h = h * t["scale"][adapter] if case[case["scale_at"]] else h
        if case["expand"] and width > 0:
            delta = t[f"b.{i}"][adapter, :, :rank] @ h + (t[f"bias.{i}"][adapter] if f"bias.{i}" in t else 0)
            want[column:end] = delta + (want[column:end] if case["add_inputs"] else 0)
        elif width > 0:
            want[lane:lane + rank], got[lane:lane + rank] = h, t["output"][i, token, :rank]
        column = end
    owned, bound = t["owned"][row] == 1, t["bound"][row]
    assert np.array_equal(want[~owned], got[~owned]), f"row {token}: a column nobody owns has changed"
    # What one rounding of the output explains is not charged to the bound.
    rounding = case["unit_roundoff_of_output"] * 2 ** np.floor(np.log2(np.abs(want) + 1e-30))
    shares = np.array([abs(want - t["expected"][row]), abs(got - want) - rounding])[:, owned] / bound[owned]
    worst_oracle, worst_output = np.maximum((worst_oracle, worst_output), shares.max(axis=1, initial=0))
print(f"{len(t['rows'])} rows of {case['case']} by {case['backend']}: "
      f"the oracle is off by {worst_oracle:.2g} of the bound, the output uses {worst_output:.2g} of it")
sys.exit(0 if worst_oracle <= 0.01 and worst_output <= 1 else 2)
