"""Finds the program lora-bench, starts it, and says what became of it."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
from typing import Any, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Union

_EXITS = {0: "pass", 1: "usage", 2: "wrong result", 3: "regression", 4: "inconclusive",
          5: "environment"}


class Error(Exception):
    """The program did no work, or not all of it; the text is what it said on standard error."""

    def __init__(self, said: str, exit_code: Optional[int] = None, rows: Any = None) -> None:
        super().__init__(said)
        self.exit_code = exit_code  #: as in docs/exit-codes.md; below 0 it was ended by a signal
        self.rows = rows  #: what there was of rows, or None


class UsageError(Error):
    """What was asked makes no sense; nothing was run (exit 1)."""


class MachineError(Error):
    """The machine stood in the way: no usable GPU, a full disk, a file not to be written (exit 5)."""


class NotPassed(Error):
    """With must_pass: not every row is right, within its thresholds and conclusive (exit 2, 3, 4)."""


class Ended(NamedTuple):
    """What a run of the program left."""

    exit_code: int
    out: str
    err: str


def error_of(ended: Ended, rows: Any = None) -> Error:
    """Makes the exception that an exit code stands for."""
    kind = {1: UsageError, 5: MachineError}.get(ended.exit_code, Error if rows is None else NotPassed)
    said = ended.err.strip()
    if not said:
        how = (f"signal {-ended.exit_code}" if ended.exit_code < 0 else
               f"exit {ended.exit_code} ({_EXITS.get(ended.exit_code, 'unknown')})")
        said = f"lora-bench ended by {how} without a word"
    return kind(said, ended.exit_code, rows)


def _candidates() -> Iterator[Optional[str]]:
    here = pathlib.Path(__file__).resolve()
    # PREFIX/lib/pythonX.Y/site-packages/lora_bench of a wheel, PREFIX/share/lora-bench/python/
    # lora_bench of other installations, and the folder of `pip install --target`.
    for prefix in (here.parents[min(4, len(here.parents) - 1)], here.parents[1]):
        if (prefix / "share" / "lora-bench" / "scenarios").is_dir():
            yield str(prefix / "bin" / "lora-bench")
    yield shutil.which("lora-bench")


def program() -> str:
    """Returns the path of the program: LORA_BENCH_BINARY, the one installed with this module, or
    that of the PATH."""
    chosen = os.environ.get("LORA_BENCH_BINARY")
    if chosen:
        return chosen
    for candidate in _candidates():
        if candidate and os.access(candidate, os.X_OK):
            return candidate
    raise MachineError("the program lora-bench is neither installed with this module nor on the "
                       "PATH; name it by LORA_BENCH_BINARY")


def _text(value: Any) -> str:
    if isinstance(value, (bool, list, tuple)):
        return json.dumps(value)
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def _each(value: Any) -> Iterable[str]:
    if isinstance(value, Mapping):
        return [f"{key}={_text(one)}" for key, one in value.items()]
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_text(one) for one in value]
    return [_text(value)]


def words_of(options: Mapping[str, Any]) -> List[str]:
    """Returns options of the command line: no_time=True is --no-time, set={"seed": 2} is --set
    seed=2, a list stands for an option that is repeated; None and False are left out."""
    words = []
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if value is True:
            words.append(option)
        elif value is not None and value is not False:
            words += [f"{option}={one}" for one in _each(value)]
    return words


def call(words: List[Union[str, "os.PathLike[str]"]], quiet: bool = True) -> Ended:
    """Runs the program to its end; unless quiet, what it says meanwhile is seen on sys.stderr."""
    environment = dict(os.environ)
    environment.setdefault("LORA_BENCH_PYTHON", sys.executable)  # for backends in Python
    said = []
    with tempfile.TemporaryFile(mode="w+", encoding="utf-8", errors="replace") as out:
        try:
            process = subprocess.Popen(
                [program(), *(os.fspath(word) for word in words)], stdin=subprocess.DEVNULL, stdout=out,
                stderr=subprocess.PIPE, env=environment, encoding="utf-8", errors="replace")
        except OSError as error:
            raise MachineError(f"lora-bench cannot be started: {error}") from error
        with process:
            assert process.stderr is not None
            try:
                for line in process.stderr:
                    said.append(line)
                    if not quiet:
                        sys.stderr.write(line)
            except BaseException:
                process.send_signal(signal.SIGINT)  # it ends after the case at hand
                raise
        out.seek(0)
        return Ended(process.returncode, out.read(), "".join(said))
