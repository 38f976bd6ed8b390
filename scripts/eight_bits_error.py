#!/usr/bin/env python3
"""How far is an adapter in eight bits from the one that was trained?

  eight_bits_error.py ADAPTER.safetensors          as PEFT writes it: ...lora_A.weight, ...lora_B.weight
  eight_bits_error.py --in 4096 --out 4096 --rank 16     drawn: A uniform as PEFT begins it, B normal

Rounds A and B to bf16, and to e4m3 and e5m2 with one scale for the tensor, for each channel (row of A and of B) or for each block,
and multiplies rows of normal numbers by both: the error of the weights and of what the adapter adds (delta), each root
mean square, relative to that of the original. A scale is the largest number divided by the largest of the format. NumPy.

Exit code 0: done; 1: a file that cannot be read; 5: no NumPy.
"""
import argparse
import json
import sys
from pathlib import Path

DONE, USAGE, ENVIRONMENT = 0, 1, 5

try:
    import numpy as np
except ImportError:
    print(f"eight_bits_error.py: {sys.executable} has no NumPy: {sys.executable} -m pip install numpy, or for the Python "
          "of Debian and Ubuntu apt-get install python3-numpy", file=sys.stderr)
    sys.exit(ENVIRONMENT)

TYPES = {"BF16": "<u2", "F16": "<f2", "F32": "<f4", "F64": "<f8"}
# Bits of the fraction, least exponent, largest number.
FORMATS = {"bf16": (7, -126, 3.3895313892515355e38), "e4m3": (3, -6, 448.0), "e5m2": (2, -14, 57344.0)}
SCALES = {"bf16": ("none",), "e4m3": ("tensor", "channel", "block"), "e5m2": ("tensor", "channel", "block")}


class Refused(Exception):
    """A file that cannot be read, and why."""


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(USAGE, f"{self.format_usage()}eight_bits_error.py: {message}\n")


def rounded(values, form):
    """To the nearest number of the format, ties to even; what is beyond the largest becomes the largest."""
    fraction, least, largest = FORMATS[form]
    exponent = np.maximum(np.frexp(np.abs(values))[1] - 1, least)
    step = np.exp2(exponent - fraction)
    return np.clip(np.rint(values / step) * step, -largest, largest)


def largest_of(values, scale, block):
    """The largest magnitude that each number shares a scale with."""
    sizes = np.abs(values)
    if scale == "tensor":
        return np.full_like(values, sizes.max())
    if scale == "channel":
        return np.broadcast_to(sizes.max(axis=1, keepdims=True), values.shape)
    largest = np.empty_like(values)
    for row in range(0, values.shape[0], block):
        for column in range(0, values.shape[1], block):
            part = np.s_[row:row + block, column:column + block]
            largest[part] = sizes[part].max()
    return largest


def quantised(values, form, scale, block):
    """The numbers that the codes and their fp32 scales stand for."""
    if scale == "none":
        return rounded(values, form)
    scales = (largest_of(values, scale, block) / FORMATS[form][2]).astype("f4").astype("f8")
    scales[scales == 0] = 1
    return rounded(values / scales, form) * scales


def relative(error, of):
    size = np.sqrt(np.mean(np.square(of)))
    return float(np.sqrt(np.mean(np.square(error))) / size) if size > 0 else 0.0


def scale_bytes(shape, scale, block):
    rows, columns = shape
    return 4 * {"none": 0, "tensor": 1, "channel": rows, "block": -(-rows // block) * -(-columns // block)}[scale]


def tensors_of(path):
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise Refused(f"{path}: cannot be read: {error.strerror}") from error
    try:
        start = 8 + int.from_bytes(raw[:8], "little")
        entries = {name: entry for name, entry in json.loads(raw[8:start]).items() if name != "__metadata__"}
        tensors = {}
        for name, entry in entries.items():
            begin, end = entry["data_offsets"]
            values = np.frombuffer(raw[start + begin:start + end], TYPES[entry["dtype"]])
            if entry["dtype"] == "BF16":
                values = (values.astype("<u4") << 16).view("<f4")
            tensors[name] = values.astype("f8").reshape(entry["shape"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refused(f"{path}: no safetensors file of floating-point tensors, or cut short") from error
    return tensors


def modules_of(path):
    tensors = tensors_of(path)
    modules = []
    for name, a in sorted(tensors.items()):
        b = tensors.get(name.replace(".lora_A.", ".lora_B."))
        if ".lora_A." in name and b is not None and a.ndim == b.ndim == 2 and a.shape[0] == b.shape[1]:
            modules.append((name.split(".lora_A.")[0], a, b))
    if not modules:
        raise Refused(f"{path}: no pair of lora_A and lora_B; name the adapter_model.safetensors of a LoRA adapter")
    return modules


def drawn(options, random):
    bound = 1 / np.sqrt(options.inputs)
    a = random.uniform(-bound, bound, (options.rank, options.inputs))
    return [("drawn", a, random.normal(size=(options.outputs, options.rank)))]


def line_of(form, scale, modules, inputs, block):
    """Bytes beside 16 bits, errors of the weights and of the delta over the modules."""
    stored, whole, weights, deltas = 0, 0, [], []
    for (_, a, b), x in zip(modules, inputs):
        near = [quantised(w, form, scale, block) for w in (a, b)]
        size = 2 if form == "bf16" else 1
        stored += sum(size * w.size + scale_bytes(w.shape, scale, block) for w in (a, b))
        whole += 2 * (a.size + b.size)
        weights += [relative(n - w, w) for n, w in zip(near, (a, b))]
        delta = x @ a.T @ b.T
        deltas.append(relative(x @ near[0].T @ near[1].T - delta, delta))
    return (f"{form:6}  {scale:7}  {stored / whole:4.0%}   {np.mean(weights):6.2%}  {np.mean(deltas):5.2%}  "
            f"{max(deltas):6.2%}")


def main():
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("adapter", nargs="?", type=Path, help="a safetensors file")
    parser.add_argument("--in", dest="inputs", type=int, default=4096)
    parser.add_argument("--out", dest="outputs", type=int, default=4096)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--block", type=int, default=128, help="rows and columns that share a scale of a block")
    parser.add_argument("--rows", type=int, default=64, help="rows of x")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for name in ("inputs", "outputs", "rank", "block", "rows"):
        if getattr(options, name) < 1:
            parser.error(f"--{ {'inputs': 'in', 'outputs': 'out'}.get(name, name)} {getattr(options, name)}: at least 1")
    random = np.random.default_rng(options.seed)
    try:
        modules = modules_of(options.adapter) if options.adapter else drawn(options, random)
    except Refused as refused:
        print(f"eight_bits_error.py: {refused}", file=sys.stderr)
        return USAGE
    print(f"{len(modules)} modules" if len(modules) > 1 else f"1 module: {modules[0][0]}")
    print("format  scale    bytes  weights  delta  worst delta")
    inputs = [random.normal(size=(options.rows, a.shape[1])) for _, a, _ in modules]
    for form in FORMATS:
        for scale in SCALES[form]:
            print(line_of(form, scale, modules, inputs, options.block))
    return DONE


if __name__ == "__main__":
    sys.exit(main())
