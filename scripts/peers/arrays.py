"""The two libraries whose arrays peers take, behind the same few functions."""
import numpy as np

from exported import rounded, widened


class Missing(Exception):
    """Why a peer cannot run here: the reason of a SKIPPED row."""


class Arrays:
    """What both do alike."""

    def put_into(self, to, values):
        """Copies each array that something holds into that of another of its form, where it lies; says how many."""
        if self.is_array(to):
            self.assign(to, values)
            return 1
        if isinstance(to, dict):
            pairs = [(to[key], values[key]) for key in to]
        elif isinstance(to, (list, tuple)):
            pairs = zip(to, values)
        else:
            pairs = [(value, vars(values)[key]) for key, value in getattr(to, "__dict__", {}).items()]
        return sum(self.put_into(*pair) for pair in pairs)


class NumPyArrays(Arrays):
    """On the host, 16-bit numbers widened to fp32: NumPy alone has no bfloat16."""

    on_gpu = False

    def is_array(self, value):
        return isinstance(value, np.ndarray)

    def take(self, stored, kind):
        return widened(stored, kind)

    def kept(self, values, dtype):
        """fp32 values as an array of the case's type keeps them here."""
        return values

    def drawn(self, shape, largest, dtype):
        """Signed numbers of all sizes below `largest`, the same each time."""
        return np.random.default_rng(1).uniform(-largest, largest, shape).astype("<f4")

    def product(self, x, weights, y, dtype):
        """y = x weights^T, rounded to the type that a layer keeps it in."""
        y[...] = rounded(x @ weights.T, dtype)

    def doubled(self, array, rows):
        """Some rows of it in fp64, where it is."""
        return array[rows].astype("<f8")

    def in_numpy(self, array):
        return array

    def turned(self, array, distance, axis):
        return np.roll(array, distance, axis)

    def copied(self, array):
        return np.array(array)

    def assign(self, to, values):
        to[...] = values

    def clear(self, array):
        array[...] = 0

    def copy_rows(self, array, to, from_rows):
        array[to] = array[from_rows]

    def put_rows(self, array, rows, values):
        array[rows] = values

    def index(self, rows):
        return rows

    def taken(self, array, index, axis):
        """Some rows of it, kept where it is: a graph may hold this."""
        return np.take(array, index, axis)

    def in_single(self, array):
        """As fp32 in NumPy."""
        return array.astype(np.float32)

    def given_back(self, array, kind):
        return np.asarray(array, "<f4"), "F32"

    def bytes_of(self, array):
        return array.nbytes

    def free_bytes(self):
        return None

    def largest(self, array):
        return float(np.max(np.abs(array), initial=0))

    def settle(self):
        pass

    def release(self):
        pass

    def scratch(self, size):
        return np.ones(size // 4 + 1, "<f4")

    def touch(self, scratch):
        scratch += 1


class TorchArrays(Arrays):
    def __init__(self, device):
        import torch
        self.torch, self.device = torch, torch.device(device)
        self.on_gpu = self.device.type == "cuda"

    def is_array(self, value):
        return self.torch.is_tensor(value)

    def take(self, stored, kind):
        torch = self.torch
        if not self.on_gpu:  # what is copied to a GPU needs no copy before
            stored = np.array(stored)
        if kind == "BF16":
            return torch.from_numpy(stored.view("<i2")).view(torch.bfloat16).to(self.device)
        return torch.from_numpy(stored).to(self.device)

    def kept(self, values, dtype):
        kind = {"bf16": self.torch.bfloat16, "fp16": self.torch.float16}.get(dtype, self.torch.float32)
        return self.torch.from_numpy(values).to(kind).float().numpy()

    def drawn(self, shape, largest, dtype):
        torch = self.torch
        kind = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(dtype, torch.float32)
        dice = torch.Generator(self.device).manual_seed(1)
        return torch.empty(shape, dtype=kind, device=self.device).uniform_(-largest, largest, generator=dice)

    def product(self, x, weights, y, dtype):
        self.torch.mm(x, weights.t(), out=y)

    def doubled(self, array, rows):
        index = rows if isinstance(rows, slice) else self.index(rows)
        return array[index].double()

    def in_numpy(self, array):
        return array.cpu().numpy()

    def turned(self, array, distance, axis):
        return self.torch.roll(array, distance, axis)

    def copied(self, array):
        return array.clone()

    def assign(self, to, values):
        to.copy_(values)

    def clear(self, array):
        array.zero_()

    def copy_rows(self, array, to, from_rows):
        to, from_rows = (self.torch.as_tensor(rows, device=self.device) for rows in (to, from_rows))
        array[to] = array[from_rows]

    def put_rows(self, array, rows, values):
        array[self.index(rows)] = self.torch.from_numpy(values).to(self.device, array.dtype)

    def index(self, rows):
        return self.torch.from_numpy(np.asarray(rows, np.int64)).to(self.device)

    def taken(self, array, index, axis):
        return array.index_select(axis, index)

    def in_single(self, array):
        return array.float().cpu().numpy()

    def given_back(self, array, kind):
        array = array.detach().cpu().contiguous()
        if array.dtype == self.torch.bfloat16:
            return array.view(self.torch.int16).numpy(), "BF16"
        return array.numpy(), "F16" if array.dtype == self.torch.float16 else "F32"

    def bytes_of(self, array):
        return array.numel() * array.element_size()

    def free_bytes(self):
        return self.torch.cuda.mem_get_info()[0] if self.on_gpu else None

    def largest(self, array):
        return float(array.float().abs().max()) if array.numel() else 0.0

    def settle(self):
        """Waits for all that was queued."""
        if self.on_gpu:
            self.torch.cuda.synchronize()

    def release(self):
        """Memory of the case before goes back, so that the next one sees what is free."""
        self.settle()
        if self.on_gpu:
            self.torch.cuda.empty_cache()

    def scratch(self, size):
        return self.torch.zeros(size // 4 + 1, dtype=self.torch.float32, device=self.device)

    def touch(self, scratch):
        scratch.add_(1)


def arrays_of(library, device):
    if library == "numpy":
        return NumPyArrays()
    try:
        import torch
    except ImportError as error:
        raise Missing(f"no PyTorch here ({error}): pip install torch") from error
    if device == "cuda" and not torch.cuda.is_available():
        raise Missing("PyTorch finds no GPU here")
    return TorchArrays(device or ("cuda" if torch.cuda.is_available() else "cpu"))
