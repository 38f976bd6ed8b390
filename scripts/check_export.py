#!/usr/bin/env python3
"""Recompute exported cases in fp64 with NumPy alone: check_export.py CASE.safetensors ...

Exit code 0: right, all of them; 2: a wrong output or oracle; 1: a file that cannot be checked; 5: no NumPy.
"""
import argparse
import json
import sys
from pathlib import Path

RIGHT, USAGE, WRONG, ENVIRONMENT = 0, 1, 2, 5

try:
    import numpy as np
except ImportError:
    print(f"check_export.py: {sys.executable} has no NumPy: {sys.executable} -m pip install numpy, or for the Python "
          "of Debian and Ubuntu apt-get install python3-numpy", file=sys.stderr)
    sys.exit(ENVIRONMENT)

TYPES = {"BF16": "<u2", "F16": "<f2", "F32": "<f4", "F64": "<f8", "I32": "<i4", "I64": "<i8", "U8": "u1"}


class Refused(Exception):
    """A file that cannot be checked, and why."""


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(USAGE, f"{self.format_usage()}check_export.py: {message}\n")


def load(path):
    raw = path.read_bytes()
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


def recomputed(t, case):
    """Of each row that the oracle evaluated: its place, its token, what is right and what the backend gave."""
    for row, token in enumerate(t["rows"]):
        adapter, column = t["adapter_of_token"][token], case["offset_start"]
        rank = t["rank"][adapter] if adapter >= 0 else 0
        want, got = np.zeros((2, t["expected"].shape[1]))
        if case["expand"]:
            want[:], got[:] = t["y_before"][token], t["output"][token]
        for i, width in enumerate(case["widths"] if rank > 0 else []):
            lane, end = i * case["max_rank"], column + width
            if case["shrink"]:
                h = t[f"a.{i}"][adapter, :rank] @ t["x"][token, :case["in_features"]]
            else:
                h = t["h"][i, token, :rank]
            h = h * t["scale"][adapter] if case[case["scale_at"]] else h
            if case["expand"] and width > 0:
                delta = t[f"b.{i}"][adapter, :, :rank] @ h + (t[f"bias.{i}"][adapter] if f"bias.{i}" in t else 0)
                want[column:end] = delta + (want[column:end] if case["add_inputs"] else 0)
            elif width > 0:
                want[lane:lane + rank], got[lane:lane + rank] = h, t["output"][i, token, :rank]
            column = end
        yield row, token, want, got


def judged(t, case):
    """Whether the output is right, and the sentence that says so."""
    worst_oracle, worst_output = 0.0, 0.0
    for row, token, want, got in recomputed(t, case):
        owned, bound = t["owned"][row] == 1, t["bound"][row]
        if not np.array_equal(want[~owned], got[~owned]):
            return False, f"token {token}: a column that nobody owns has changed"
        # What one rounding of the output explains is not charged to the bound.
        rounding = case["unit_roundoff_of_output"] * 2 ** np.floor(np.log2(np.abs(want) + 1e-30))
        shares = np.array([abs(want - t["expected"][row]), abs(got - want) - rounding])[:, owned] / bound[owned]
        worst_oracle, worst_output = np.maximum((worst_oracle, worst_output), shares.max(axis=1, initial=0))
    return worst_oracle <= 0.01 and worst_output <= 1, (
        f"the oracle is off by {worst_oracle:.2g} of the bound, the output uses {worst_output:.2g} of it")


def check(path):
    """Whether a file is right; says so."""
    if path.suffix == ".json":
        raise Refused(f"{path}: name the tensors beside it, {path.with_suffix('.safetensors')}")
    try:
        path.stat()  # of two files that are not there the one that was named is told
        case = json.loads(path.with_suffix(".json").read_bytes())
        if case.get("op") in ("metadata", "quantise"):
            raise Refused(f"{path}: a case of op {case['op']}; this checks products (docs/export.md says what proves it)")
        if case.get("semantics"):
            raise Refused(f"{path}: a case of {case['semantics']}; this checks plain ops")
        t = load(path)
        if len(t["rows"]) == 0:
            raise ValueError("it has no rows")
        right, sentence = judged(t, case)
    except OSError as error:
        raise Refused(f"{error.filename}: cannot be read: {error.strerror}; "
                      "`lora-bench export` writes ID.safetensors and ID.json") from error
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise Refused(f"{path}: not what `lora-bench export` wrote, or cut short "
                      f"({type(error).__name__}: {error})") from error
    print(f"{'right' if right else 'WRONG'}: {len(t['rows'])} rows of {case['case']} by {case['backend']}: {sentence}")
    return right


def main():
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="CASE.safetensors", help="with its .json beside it")
    codes = set()
    for path in parser.parse_args().files:
        try:
            codes.add(RIGHT if check(path) else WRONG)
        except Refused as refused:
            print(f"check_export.py: {refused}", file=sys.stderr)
            codes.add(USAGE)
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
