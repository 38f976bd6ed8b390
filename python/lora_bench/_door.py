"""Turns a Python file into a descriptor of include/lora_bench_backend.h for the program around us.

src/ops/python_plugin.cpp calls `load` and reads what it leaves in an `Answer`.
"""

import contextlib
import ctypes
import runpy
import sys
import traceback

from . import _declared, _interface
from ._step import Problem, Step


class Answer(ctypes.Structure):
    """PythonAnswer of src/ops/python_plugin.cpp."""

    _fields_ = [("descriptor", ctypes.c_void_p), ("message", ctypes.c_char * 4096)]


_Pointer = ctypes.POINTER
_Supports = ctypes.CFUNCTYPE(ctypes.c_int32, _Pointer(_interface.Problem),
                             _Pointer(_interface.Device), ctypes.c_void_p, ctypes.c_int64)
_FillNumerics = ctypes.CFUNCTYPE(None, _Pointer(_interface.Problem), _Pointer(_interface.Numerics))
_WorkspaceBytes = ctypes.CFUNCTYPE(ctypes.c_int64, _Pointer(_interface.Problem))
_Launch = ctypes.CFUNCTYPE(ctypes.c_int32, _Pointer(_interface.Problem),
                           _Pointer(_interface.Operands), ctypes.c_void_p, ctypes.c_void_p,
                           ctypes.c_int64)


class _Descriptor(ctypes.Structure):
    _fields_ = [
        ("abi_version", ctypes.c_uint32),
        ("struct_size", ctypes.c_uint32),
        ("name", ctypes.c_char_p),
        ("summary", ctypes.c_char_p),
        ("space", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("supports", _Supports),
        ("numerics", _FillNumerics),
        ("workspace_bytes", _WorkspaceBytes),
        ("launch", _Launch),
        ("supports_metadata", ctypes.c_void_p),
        ("metadata", ctypes.c_void_p),
        ("takes", ctypes.c_uint64),
    ]


_kept = []  # descriptors and what they point to, for the rest of the process


def _put(text, address, room):
    """Writes a sentence with its end into a buffer of the caller."""
    content = text.encode(errors="replace")[:max(0, room - 1)] + b"\0"
    ctypes.memmove(address, content, len(content))


def _told(error):
    """The error in one line, with the place in the file that it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name})" if frames else ""
    return f"{type(error).__name__}: {error}{place}".replace("\n", " ")


def _on_stream(step):
    """Has PyTorch, where it was imported, enqueue on the stream of the step."""
    torch = sys.modules.get("torch")
    if torch is None or step.device != "cuda":
        return contextlib.nullcontext()
    return torch.cuda.stream(torch.cuda.ExternalStream(step.stream))


class _Backend:
    """The functions of one file behind one descriptor."""

    def __init__(self, functions):
        self.functions = {_interface.OPS[function.name]: function for function in functions}
        self.device = functions[0].device
        self.failed = None  # what a call threw that has no room for a message

    def supports(self, problem, device, why, room):
        self.failed = None  # a problem begins with this question
        try:
            function = self.functions.get(problem[0].op)
            if function is None:
                view = Problem(problem[0])
                _put(f"has no function {view.op}", why, room)
                return 1
            reason = function.supports(Problem(problem[0])) if function.supports else None
            if reason:
                _put(str(reason), why, room)
            return 1 if reason else 0
        except BaseException as error:
            _put(_told(error), why, room)
            return 1

    def numerics(self, problem, numerics):
        try:
            function = self.functions.get(problem[0].op)
            if function is not None:
                function.fill(numerics[0], Problem(problem[0]))
        except BaseException as error:
            self.failed = f"numerics: {_told(error)}"

    def workspace_bytes(self, problem):
        try:
            function = self.functions.get(problem[0].op)
            wanted = function.workspace_bytes if function is not None else 0
            return int(wanted(Problem(problem[0])) if callable(wanted) else wanted or 0)
        except BaseException as error:
            self.failed = f"workspace_bytes: {_told(error)}"
            return 0

    def launch(self, problem, operands, stream, message, room):
        try:
            if self.failed is not None:
                raise RuntimeError(self.failed)
            step = Step(Problem(problem[0]), operands[0], stream, self.device)
            with _on_stream(step):
                self.functions[problem[0].op].call(step)
            return 0
        except BaseException as error:
            _put(_told(error), message, room)
            return 1


def _descriptor(functions, file):
    backend = _Backend(functions)
    takes = 0
    for name in set.intersection(*(set(function.takes) for function in functions)):
        takes |= _interface.TAKES[name]
    descriptor = _Descriptor(
        _interface.ABI, ctypes.sizeof(_Descriptor), file.encode(),
        ("Python: " + ", ".join(function.name for function in functions)).encode(),
        _interface.SPACES[backend.device], 0, _Supports(backend.supports),
        _FillNumerics(backend.numerics), _WorkspaceBytes(backend.workspace_bytes),
        _Launch(backend.launch), None, None, takes)
    _kept.append((descriptor, backend))
    return descriptor


def load(file, address):
    """Runs the file and leaves the address of its descriptor, or a message, at `address`."""
    answer = Answer.from_address(address)
    sys.stdout = sys.stderr  # what a kernel prints is no result
    try:
        _declared.declared.clear()
        runpy.run_path(file, run_name="lora_bench_backend")
        functions = list(_declared.declared)
        if not functions:
            raise TypeError("no function has the decorator @lora_bench.backend")
        if len({function.device for function in functions}) > 1:
            raise TypeError("its functions are for different devices; put them into files of their own")
        if len({function.name for function in functions}) < len(functions):
            raise TypeError("two functions are for the same op")
        answer.descriptor = ctypes.addressof(_descriptor(functions, file))
    except BaseException as error:
        answer.message = _told(error).encode(errors="replace")[:4095]
