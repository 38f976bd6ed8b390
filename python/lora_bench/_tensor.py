"""Tensors over memory that lora-bench owns, as other libraries take them without a copy."""

import ctypes

_CPU, _CUDA = 1, 2  # DLDeviceType
_INT, _UINT, _FLOAT, _BFLOAT = 0, 1, 2, 4  # DLDataTypeCode
_CODES = {
    "fp32": (_FLOAT, 32, "<f4"),
    "fp16": (_FLOAT, 16, "<f2"),
    "bf16": (_BFLOAT, 16, None),  # NumPy has none: see Tensor.bits
    "e4m3": (None, 8, None),  # neither DLPack nor NumPy that everybody has knows these
    "e5m2": (None, 8, None),
    "uint16": (_UINT, 16, "<u2"),
    "int32": (_INT, 32, "<i4"),
    "int64": (_INT, 64, "<i8"),
    "uint8": (_UINT, 8, "|u1"),
}


class _DLDevice(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class _DLDataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _DLDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", _DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _DLManagedTensor(ctypes.Structure):
    _fields_ = [
        ("dl_tensor", _DLTensor),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", _Deleter),
    ]


_NOTHING = ctypes.c_int64()
_alive = {}  # what consumers of capsules still hold, by address


@_Deleter
def _forget(address):
    _alive.pop(address, None)


_python = ctypes.pythonapi
_python.PyCapsule_New.restype = ctypes.py_object
_python.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_python.PyCapsule_IsValid.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
_python.PyCapsule_GetPointer.restype = ctypes.c_void_p
_python.PyCapsule_GetPointer.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
_NAME = b"dltensor"


@_Deleter
def _drop_capsule(capsule):
    """Frees what no consumer took: one that did has renamed the capsule."""
    if _python.PyCapsule_IsValid(capsule, _NAME):
        _forget(_python.PyCapsule_GetPointer(capsule, _NAME))


class Tensor:
    """Memory of lora-bench with a shape. It is valid during the call that it was handed to.

    `torch.from_dlpack`, `cupy.from_dlpack`, `jax.dlpack.from_dlpack` and `numpy.asarray` (of what
    lies on the host) give arrays of their own over the same memory.
    """

    def __init__(self, pointer, shape, dtype, device):
        self.pointer = pointer
        self.shape = tuple(shape)
        self.dtype = dtype
        self.device = device

    def __repr__(self):
        return f"Tensor({self.dtype}, {list(self.shape)}, {self.device})"

    @property
    def bits(self):
        """The same memory as uint16, or uint8, for libraries that lack bf16 or eight bits."""
        bits = _CODES[self.dtype][1]
        if bits not in (8, 16):
            raise TypeError(f"bits are for numbers of 8 or 16 bits, this tensor holds {self.dtype}")
        return Tensor(self.pointer, self.shape, f"uint{bits}", self.device)

    def __dlpack_device__(self):
        return (_CUDA if self.device == "cuda" else _CPU, 0)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """Returns a capsule. No stream is waited for: all work of a step goes to `step.stream`."""
        code, bits, _ = _CODES[self.dtype]
        if code is None:
            raise BufferError(f"{self} goes by its bits: of PyTorch, "
                              "torch.from_dlpack(tensor.bits).view(torch.float8_e4m3fn), or _e5m2")
        shape = (ctypes.c_int64 * len(self.shape))(*self.shape)
        managed = _DLManagedTensor()
        managed.dl_tensor = _DLTensor(
            self.pointer, _DLDevice(*self.__dlpack_device__()), len(self.shape),
            _DLDataType(code, bits, 1), shape, None, 0)
        managed.deleter = _forget
        address = ctypes.addressof(managed)
        _alive[address] = (managed, shape)
        return _python.PyCapsule_New(address, _NAME, ctypes.cast(_drop_capsule, ctypes.c_void_p))

    def _interface(self, device):
        typestr = _CODES[self.dtype][2]
        if self.device != device or typestr is None:
            raise AttributeError(f"a tensor of {self.dtype} on {self.device} has no such interface")
        # An empty tensor has no address, and NumPy wants one.
        address = self.pointer or ctypes.addressof(_NOTHING)
        return {"shape": self.shape, "typestr": typestr, "data": (address, False),
                "strides": None, "version": 3}

    @property
    def __array_interface__(self):
        return self._interface("cpu")

    @property
    def __cuda_array_interface__(self):
        return self._interface("cuda")

    def __array__(self, dtype=None, copy=None):
        """Reached where NumPy finds no interface that it can read: says what to do instead."""
        if self.device != "cpu":
            raise TypeError(f"{self} lies on the GPU, where NumPy reads nothing; torch.from_dlpack "
                            "and cupy.from_dlpack do")
        if _CODES[self.dtype][2] is None:
            raise TypeError(f"NumPy has no {self.dtype}: take the numbers of {self} by "
                            "lora_bench.on_host.numbers(memory_of(tensor)), or tensor.bits, the same "
                            "memory as uint16" if self.dtype == "bf16" else
                            f"NumPy has no {self.dtype}: lora_bench.on_host.weights_of reads weights "
                            "with their scales, and tensor.bits is the same memory as uint8")
        import numpy
        array = numpy.asarray(self)
        return array if dtype is None and not copy else array.astype(dtype or array.dtype)
