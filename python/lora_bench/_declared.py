"""What the functions of a file declare of themselves."""

import numbers

from . import _interface

_NUMBERS = ("unit_roundoff", "shrink_depth", "expand_depth", "partials")
_FLAGS = ("rounds_delta", "deterministic", "batch_invariant", "graph_safe", "casts_h",
          "replays_other_batches")

declared = []  # in the file that is being loaded
told_versions = []  # the same, of libraries


class Function:
    """A function of a backend with what was said about it."""

    def __init__(self, call, device, takes, supports, bytes_of, prepare, numerics):
        self.call = call
        self.name = call.__name__
        self.device = device
        self.takes = takes
        self.supports = supports
        self._bytes_of = bytes_of
        self.prepare = prepare
        self.numerics = numerics

    def bytes_of(self, what, problem):
        """Returns the bytes of "workspace" or "prepared" for a problem."""
        wanted = self._bytes_of[what]
        count = int(wanted(problem) if callable(wanted) else wanted or 0)
        if count >= 1 << 63:  # the interface would cut it
            raise ValueError(f"{count} bytes")
        return count

    def fill(self, out, problem):
        """Writes what was declared into a struct that holds the defaults."""
        for name, value in self.numerics.items():
            setattr(out, name, _stored(name, value(problem) if callable(value) else value))


def _stored(name, value):
    """What the interface has for a declared value; raises for one that there is not."""
    if name == "partial":
        return _choice(name, value, _interface.DTYPES)
    if name == "intermediate":
        return _choice(name, value, _interface.OPERAND_DTYPES)
    if name == "bias_added":
        return _choice(name, value, _interface.BIAS_ADDED)
    if name == "summation":
        if not isinstance(value, str):
            raise TypeError(f"summation is {value!r}; it is a sentence")
        return value.encode()[:127]
    if name in _FLAGS:
        if value not in (True, False):
            raise TypeError(f"{name} is {value!r}; say True or False")
        return bool(value)
    whole = name != "unit_roundoff"
    if isinstance(value, bool) or not isinstance(value, numbers.Integral if whole else numbers.Real):
        raise TypeError(f"{name} is {value!r}; it is a {'whole ' if whole else ''}number")
    return int(value) if whole else float(value)


def _choice(name, value, allowed):
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name} is {value!r}; allowed: {', '.join(allowed)}")
    return allowed[value]


def backend(function=None, *, device="cuda", takes=(), supports=None, workspace_bytes=None,
            prepare=None, prepared_bytes=None, versions=(), **numerics):
    """Makes a function the kernel of the op that it is named after.

    device: where its operands lie, "cuda" or "cpu".
    takes: what it does beyond the plain op, names of LORA_BENCH_TAKES_... in lower case.
    supports: a function of a problem that returns None, or a sentence on why not.
    workspace_bytes: a number, or a function of a problem.
    prepare, prepared_bytes: a function of a step that makes of the weights, into `step.prepared`,
        what the function wants to read instead of them, and its bytes. It runs in no time that is
        taken, before launches and whenever weights or ranks have changed.
    versions: what the rows say of libraries beside those whose names the file has imported.
    numerics: partial, intermediate (dtypes), rounds_delta, deterministic, batch_invariant,
        graph_safe, replays_other_batches, casts_h (bool), unit_roundoff, shrink_depth,
        expand_depth, partials (numbers), bias_added, summation; each a value or a function of a
        problem. What is not named has the default of lora_bench_numerics.
    """
    if function is None:
        return lambda it: backend(it, device=device, takes=takes, supports=supports,
                                  workspace_bytes=workspace_bytes, prepare=prepare,
                                  prepared_bytes=prepared_bytes, versions=versions, **numerics)
    known = ("partial", "intermediate", "bias_added", "summation") + _NUMBERS + _FLAGS
    for name, value in numerics.items():
        if name not in known:
            raise TypeError(f"a backend declares no '{name}'; it may declare: {', '.join(known)}")
        if not callable(value):
            _stored(name, value)
    ops = (*_interface.OPS, _interface.METADATA, _interface.QUANTISE)
    if function.__name__ not in ops:
        raise TypeError(f"'{function.__name__}' is no op; name the function after the one it does: "
                        f"{', '.join(ops)}")
    _choice("device", device, _interface.SPACES)
    if isinstance(takes, str):
        raise TypeError(f"takes is a list: takes=[{takes!r}]")
    for name in takes:
        _choice("takes", name, _interface.TAKES)
    versions = [versions] if isinstance(versions, str) else versions
    if (prepare is None) != (prepared_bytes is None):
        raise TypeError("prepare and prepared_bytes go together")
    bytes_of = {"workspace": workspace_bytes, "prepared": prepared_bytes}
    declared.append(Function(function, device, takes, supports, bytes_of, prepare, numerics))
    told_versions.extend(one for one in versions if one not in told_versions)
    return function
