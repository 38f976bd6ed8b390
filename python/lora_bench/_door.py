"""Turns a Python file into a descriptor of include/lora_bench_backend.h for the program around us.

src/ops/python_plugin.cpp calls `load` and reads what it leaves in an `Answer`.
"""

import contextlib
import ctypes
import hashlib
import importlib
import inspect
import os
import platform
import runpy
import sys
import traceback
import types
from functools import partial

from . import _declared, _interface
from ._step import MetadataStep, Problem, QuantiseStep, Step, addresses_at, content_of


class Answer(ctypes.Structure):
    """PythonAnswer of src/ops/python_plugin.cpp."""

    _fields_ = [("descriptor", ctypes.c_void_p), ("message", ctypes.c_char * 4096),
                ("libraries", ctypes.c_char * 1024)]


_Pointer = ctypes.POINTER
_Supports = ctypes.CFUNCTYPE(ctypes.c_int32, _Pointer(_interface.Problem),
                             _Pointer(_interface.Device), ctypes.c_void_p, ctypes.c_int64)
_FillNumerics = ctypes.CFUNCTYPE(None, _Pointer(_interface.Problem), _Pointer(_interface.Numerics))
_Bytes = ctypes.CFUNCTYPE(ctypes.c_int64, _Pointer(_interface.Problem))
_Enqueue = ctypes.CFUNCTYPE(ctypes.c_int32, _Pointer(_interface.Problem),
                           _Pointer(_interface.Operands), ctypes.c_void_p, ctypes.c_void_p,
                           ctypes.c_int64)
_SupportsMetadata = ctypes.CFUNCTYPE(ctypes.c_int32, _Pointer(_interface.Metadata),
                                     _Pointer(_interface.Device), ctypes.c_void_p, ctypes.c_int64)
_EnqueueMetadata = ctypes.CFUNCTYPE(ctypes.c_int32, _Pointer(_interface.Metadata), ctypes.c_void_p,
                                    ctypes.c_void_p, ctypes.c_int64)
_SupportsQuantise = ctypes.CFUNCTYPE(ctypes.c_int32, _Pointer(_interface.Quantise),
                                     _Pointer(_interface.Device), ctypes.c_void_p, ctypes.c_int64)
_EnqueueQuantise = ctypes.CFUNCTYPE(ctypes.c_int32, _Pointer(_interface.Quantise), ctypes.c_void_p,
                                    ctypes.c_void_p, ctypes.c_int64)
# Ops whose steps are arrays alone, and what a function of each is given.
_ARRAY_STEPS = {_interface.METADATA: MetadataStep, _interface.QUANTISE: QuantiseStep}


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
        ("workspace_bytes", _Bytes),
        ("launch", _Enqueue),
        ("supports_metadata", _SupportsMetadata),
        ("metadata", _EnqueueMetadata),
        ("takes", ctypes.c_uint64),
        ("prepared_bytes", _Bytes),
        ("prepare", _Enqueue),
        ("slow_to_launch", ctypes.c_int32),
        ("reserved_too", ctypes.c_int32),
        ("supports_quantise", _SupportsQuantise),
        ("quantise", _EnqueueQuantise),
    ]


_kept = []  # descriptors and what they point to, for the rest of the process


def _put(text, address, room):
    """Writes a sentence with its end into a buffer of the caller."""
    content = text.encode(errors="replace")[:max(0, room - 1)] + b"\0"
    ctypes.memmove(address, content, len(content))


class _Failed(Exception):
    """What an earlier call threw, as it was told."""


def _told(error):
    """The error in one line, with the last place in a file of the user's, where it met one."""
    if isinstance(error, _Failed):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if os.path.dirname(frame.filename) in _Siblings.folders]
    last = (own or frames)[-1:]
    place = "".join(f" ({frame.filename}:{frame.lineno} in {frame.name})" for frame in last)
    asked = ""
    if isinstance(error, ModuleNotFoundError):
        asked = f"; {sys.executable} was asked, --python or LORA_BENCH_PYTHON names another"
    return f"{type(error).__name__}: {error}{place}{asked}".replace("\n", " ")


_PACKAGE = os.path.dirname(os.path.abspath(__file__))


class _Siblings:
    """What a file may import from beside it. Two files may have siblings of the same name: each
    finds its own, as it was when it was loaded."""

    folders = set()
    current = None  # whose siblings are to be found now

    def __init__(self, file):
        # Files of this package are named after libraries, and import none of each other.
        folder = os.path.dirname(file)
        self.folder = None if _is_in(folder, _PACKAGE) else folder
        self.modules = {}

    def begin(self):
        """Before the file is loaded: what lies beside it is read anew."""
        if self.folder is not None:
            self.folders.add(self.folder)
        self.enter()
        importlib.invalidate_caches()

    def end(self):
        """After it was loaded."""
        self.modules = {name: module for name, module in sys.modules.items()
                        if _folder_of(module) == self.folder and self.folder is not None}

    def enter(self):
        """Before any function of the file is called: it may import more."""
        if _Siblings.current is self:
            return
        _Siblings.current = self
        own = [] if self.folder is None else [self.folder]
        sys.path[:] = own + [one for one in sys.path if one not in self.folders]
        for name, module in list(sys.modules.items()):
            if _folder_of(module) in self.folders and self.modules.get(name) is not module:
                del sys.modules[name]
        sys.modules.update(self.modules)

    def hashes(self):
        """What a row says of them: rows of other code are no rows of this one."""
        return [f"{os.path.basename(module.__file__)} sha256:{_hash_of(module.__file__)}"
                for _, module in sorted(self.modules.items())]


def _is_in(folder, other):
    return folder == other or folder.startswith(other + os.sep)


def _folder_of(module):
    return os.path.dirname(getattr(module, "__file__", None) or "")


def _hash_of(file):
    with open(file, "rb") as stream:
        return hashlib.sha256(stream.read()).hexdigest()


def _on_stream(step):
    """Has PyTorch, where it was imported, enqueue on the stream of the step."""
    torch = sys.modules.get("torch")
    if torch is None or step.device != "cuda":
        return contextlib.nullcontext()
    return torch.cuda.stream(torch.cuda.ExternalStream(step.stream))


_MOST_PROBLEMS = 256  # that are remembered; timing has a few at once
_MOST_STEPS = 4096


def _answered(function, problem, why, room):
    """What a function's `supports` says of a problem, as the interface has it."""
    reason = function.supports(problem) if function.supports else None
    if reason is not None and not isinstance(reason, str):
        raise TypeError(f"supports of {function.name} returned {reason!r}; return a sentence on why "
                        "not, or None where it can")
    if reason:
        _put(reason, why, room)
    return 1 if reason else 0


class _Backend:
    """The functions of one file behind one descriptor."""

    def __init__(self, functions, siblings):
        self.siblings = siblings
        self.functions = {_interface.OPS[function.name]: function for function in functions
                          if function.name not in _ARRAY_STEPS}
        self.of_arrays = {function.name: function for function in functions
                          if function.name in _ARRAY_STEPS}
        self.device = functions[0].device
        self.failed = None  # what a call threw that has no room for a message
        self.problems = {}  # by content
        self.steps = {}  # by problem and addresses

    def problem_of(self, raw):
        content = content_of(raw)
        if content not in self.problems:
            if len(self.problems) >= _MOST_PROBLEMS:
                del self.problems[next(iter(self.problems))]
            self.problems[content] = Problem(raw)
        return self.problems[content]

    def step_of(self, function, raw, operands, stream):
        problem = self.problem_of(raw)
        key = (id(problem), bytes(operands), stream,
               *(tuple(addresses_at(getattr(operands, name), raw.slices))
                 for name in ("a", "b", "bias", "a_scale", "b_scale")))
        step = self.steps.get(key)
        if step is None or step.problem is not problem:
            if len(self.steps) >= _MOST_STEPS:
                self.steps.clear()
            step = Step(problem, operands, stream, self.device,
                        function.bytes_of("prepared", problem.once(Problem.without_plan)))
            self.steps[key] = step
        return step

    def supports(self, problem, device, why, room):
        self.failed = None  # a problem begins with this question
        self.siblings.enter()
        try:
            function = self.functions.get(problem[0].op)
            view = self.problem_of(problem[0])
            if function is None:
                _put(f"has no function {view.op}", why, room)
                return 1
            return _answered(function, view, why, room)
        except BaseException as error:
            self.failed = f"supports: {_told(error)}"  # told by the launch, as an ERROR
            return 0

    def supports_arrays(self, op, step, device, why, room):
        self.failed = None
        self.siblings.enter()
        try:
            step = _ARRAY_STEPS[op](step[0], None, self.device)
            return _answered(self.of_arrays[op], step, why, room)
        except BaseException as error:
            self.failed = f"supports: {_told(error)}"
            return 0

    def enqueue_arrays(self, op, raw, stream, message, room):
        try:
            if self.failed is not None:
                raise _Failed(self.failed)
            self.siblings.enter()
            step = _ARRAY_STEPS[op](raw[0], stream, self.device)
            with _on_stream(step):
                self.of_arrays[op].call(step)
            return 0
        except BaseException as error:
            _put(_told(error), message, room)
            return 1

    def numerics(self, problem, numerics):
        try:
            self.siblings.enter()
            function = self.functions.get(problem[0].op)
            if function is not None:
                function.fill(numerics[0], self.problem_of(problem[0]))
        except BaseException as error:
            self.failed = f"numerics: {_told(error)}"

    def bytes_of(self, what, problem):
        try:
            self.siblings.enter()
            function = self.functions.get(problem[0].op)
            return 0 if function is None else function.bytes_of(what, self.problem_of(problem[0]))
        except BaseException as error:
            self.failed = f"{what}_bytes: {_told(error)}"
            return 0

    def enqueue(self, what, problem, operands, stream, message, room):
        try:
            if self.failed is not None:
                raise _Failed(self.failed)
            self.siblings.enter()
            function = self.functions[problem[0].op]
            step = self.step_of(function, problem[0], operands[0], stream)
            with _on_stream(step):
                getattr(function, what)(step)
            return 0
        except BaseException as error:
            _put(_told(error), message, room)
            return 1


def _descriptor(functions, file, siblings):
    backend = _Backend(functions, siblings)
    takes = 0
    for name in set.intersection(*(set(function.takes) for function in functions)):
        takes |= _interface.TAKES[name]

    def of_arrays(op, kind, call):
        return kind(partial(call, op)) if op in backend.of_arrays else kind()

    descriptor = _Descriptor(
        _interface.ABI, ctypes.sizeof(_Descriptor), file.encode(),
        ("Python: " + ", ".join(function.name for function in functions)).encode(),
        _interface.SPACES[backend.device], 0, _Supports(backend.supports),
        _FillNumerics(backend.numerics), _Bytes(partial(backend.bytes_of, "workspace")),
        _Enqueue(partial(backend.enqueue, "call")),
        of_arrays(_interface.METADATA, _SupportsMetadata, backend.supports_arrays),
        of_arrays(_interface.METADATA, _EnqueueMetadata, backend.enqueue_arrays), takes,
        _Bytes(partial(backend.bytes_of, "prepared")), _Enqueue(partial(backend.enqueue, "prepare")),
        1, 0, of_arrays(_interface.QUANTISE, _SupportsQuantise, backend.supports_arrays),
        of_arrays(_interface.QUANTISE, _EnqueueQuantise, backend.enqueue_arrays))
    _kept.append((descriptor, backend))
    return descriptor


def _libraries(names, siblings):
    """Python and the libraries that the file has names of, with their versions; then what lies
    beside the file and was imported."""
    told = [f"Python {platform.python_version()}"]
    for value in names.values():
        module = value.__name__ if isinstance(value, types.ModuleType) else \
            getattr(value, "__module__", None)
        package = str(module).split(".")[0]
        version = getattr(sys.modules.get(package), "__version__", None)
        text = f"{package} {version}"
        if isinstance(version, str) and text not in told:
            told.append(text)
    return ", ".join(told + _declared.told_versions + siblings.hashes())


def _refuse_twins(functions):
    for function in functions:
        twins = [other for other in functions if other.name == function.name]
        if len(twins) > 1:
            codes = [getattr(inspect.unwrap(twin.call), "__code__", None) for twin in twins]
            places = [f"{code.co_filename}:{code.co_firstlineno}" for code in codes if code]
            raise TypeError(f"{len(twins)} functions are for the op {function.name} "
                            f"({', '.join(places)}); a file has one for each op")


def load(file, address):
    """Runs the file and leaves the address of its descriptor, or a message, at `address`."""
    answer = Answer.from_address(address)
    sys.stdout = sys.stderr  # what a kernel prints is no result
    try:
        _declared.declared.clear()
        _declared.told_versions.clear()
        siblings = _Siblings(file)
        siblings.begin()
        names = runpy.run_path(file, run_name="lora_bench_backend")
        siblings.end()
        functions = list(_declared.declared)
        if not functions:
            raise TypeError("no function has the decorator @lora_bench.backend")
        if len({function.device for function in functions}) > 1:
            raise TypeError("its functions are for different devices; put them into files of their own")
        _refuse_twins(functions)
        answer.libraries = _libraries(names, siblings).encode(errors="replace")[:1023]
        answer.descriptor = ctypes.addressof(_descriptor(functions, file, siblings))
    except BaseException as error:
        answer.message = _told(error).encode(errors="replace")[:4095]
