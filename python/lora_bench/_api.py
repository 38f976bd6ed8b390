"""What a script or a notebook calls. All work is done by the program lora-bench."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import tempfile
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Union

from ._program import Ended, call, error_of, words_of

Path = Union[str, "os.PathLike[str]"]
Row = Dict[str, Any]
#: The name of a shipped scenario, a file, or the fields of one.
Scenario = Union[str, "os.PathLike[str]", "Case", Mapping[str, Any]]
Backends = Union[str, "os.PathLike[str]", Sequence[Path], None]


class Rows(List[Row]):
    """Rows of a results file, each a dict by the names of columns (docs/metrics.md).

    `pandas.DataFrame(rows)` takes them. What has no value is None.
    """

    context: Dict[str, Any]  #: the machine, the build and the command
    exit_code: Optional[int]  #: of the run that made them (docs/exit-codes.md); None for a file
    table: str  #: what the program printed: the table, and of what is wrong the story
    summary: str  #: what it said on standard error

    def __init__(self, rows: Iterable[Row] = (), context: Optional[Dict[str, Any]] = None,
                 exit_code: Optional[int] = None, table: str = "", summary: str = "") -> None:
        super().__init__(rows)
        self.context = context or {}
        self.exit_code = exit_code
        self.table = table
        self.summary = summary


class Case:
    """A scenario of one case or several, by the fields of docs/scenario-format.md.

    Case(layer={"in": 4096, "out": 4096}, batch={"decode": 64}, adapters={"slots": 8, "rank": 16})

    Fields with a dot may be given as a dict: Case({"adapters.rank": 16, ...}). A path in it that
    is a pathlib.Path is taken from the working folder; a text is taken as the program takes it.
    """

    def __init__(self, fields: Optional[Mapping[str, Any]] = None, /, **more: Any) -> None:
        self.fields: Dict[str, Any] = {**(fields or {}), **more}

    def __repr__(self) -> str:
        return f"Case({self.fields!r})"

    def text(self) -> str:
        """Returns the text of its scenario file: JSON, which is YAML too."""
        return json.dumps(self.fields, indent=1, default=_plain) + "\n"

    def write(self, file: Path) -> pathlib.Path:
        """Writes its scenario file, for the command line; returns the path."""
        path = pathlib.Path(file)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False,
                                         encoding="utf-8") as whole:
            whole.write(self.text())
        os.chmod(whole.name, 0o644)
        os.replace(whole.name, path)  # nobody reads half of it
        return path

    def file(self) -> pathlib.Path:
        """Returns a scenario file with its text. It lies in the cache folder of lora-bench and
        stays there, so that the command in a row's column `repro` runs."""
        home = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
        text = hashlib.sha256(self.text().encode()).hexdigest()[:16]
        path = pathlib.Path(home) / "lora-bench" / "cases" / text / "case.yaml"
        return path if path.exists() else self.write(path)

    def run(self, backends: Backends = None, **options: Any) -> Rows:
        """Proves and times it, see `run`."""
        return run(self, backends=backends, **options)

    def verify(self, backends: Backends = None, **options: Any) -> Rows:
        """Proves it at every level, see `verify`."""
        return verify(self, backends=backends, **options)

    def export(self, to: Path, backend: Path = "cpu", **options: Any) -> List[pathlib.Path]:
        """Writes it with what is right as safetensors, see `export`."""
        return export(self, to, backend=backend, **options)

    def check(self, output: Path, *, case: Optional[str] = None, scales_as_written: bool = False,
              **declared: Any) -> Row:
        """Proves a result that anything computed from what `export` writes, see `check`.

        case names the one of several; scales_as_written must be as it was for `export`.
        """
        with tempfile.TemporaryDirectory(prefix="lora-bench-") as folder:
            written = export(self, folder, case=case, scales_as_written=scales_as_written)
            if len(written) > 1:
                raise ValueError("a result is of one case, and here are several: name one by case=")
            return check(written[0], output, **declared)


def run(scenario: Union[Scenario, Sequence[Scenario]], *, backends: Backends = None,
        quiet: bool = True, must_pass: bool = False, **options: Any) -> Rows:
    """Proves and times every case of scenarios on backends, as `lora-bench run` does.

    scenario: a name of `lora-bench list scenarios`, a file, a Case or a dict of fields; or several.
    backends: names, files of Python, shared libraries; without them those of the scenario.
    quiet: False shows progress on sys.stderr.
    must_pass: raise NotPassed unless the exit code is 0.
    options: those of the command line, with _ for -: no_time=True, repeat=10, case="decode8-*",
        set={"adapters.rank": 32}, filter=["rank>=64"], out="rows.csv", isolate=True.

    A row that FAILED is in the list and raises nothing. What makes no sense raises UsageError, what
    the machine does not let be done MachineError, with the program's own words.
    """
    return _rows("run", _files(scenario), backends, quiet, must_pass, options)


def verify(scenario: Union[Scenario, Sequence[Scenario], None] = None, *, backends: Backends = None,
           quiet: bool = True, must_pass: bool = False, **options: Any) -> Rows:
    """Proves backends at every level and times nothing, as `lora-bench verify` does.

    Without a scenario those of the shipped suite are proved. Arguments are those of `run`, options
    those of the command line: quick=True, jobs=4, isolate=True.
    """
    files = [] if scenario is None else _files(scenario)
    return _rows("verify", files, backends, quiet, must_pass, options)


def export(scenario: Scenario, to: Path, *, backend: Path = "cpu",
           **options: Any) -> List[pathlib.Path]:
    """Writes cases with inputs, the backend's output and what is right, as `lora-bench export` does.

    Returns the .safetensors files; beside each lies its metadata in .json. docs/export.md says what
    is in them. Options are those of the command line: case="decode8-rank8", form=["kernel"],
    scales_as_written=True.
    """
    ended = call(["export", *_files(scenario), "--to", os.fspath(to),
                  *words_of({"backends": backend, **options})])
    if ended.exit_code != 0:
        raise error_of(ended)
    lines = map(pathlib.Path, ended.out.splitlines())
    return [line for line in lines if line.suffix == ".safetensors"]


def check(exported: Path, output: Path, **declared: Any) -> Row:
    """Proves a result that anything computed from an exported case, as `lora-bench check` does.

    output: a safetensors file with a tensor `output`, or the one that tensor="NAME" names; of op
        quantise with `q` and, where scales are made, `q_scale`.
    declared: what its kernel did: intermediate="bf16", rounds_delta=True, expand_depth=20.

    Returns a row; its status is FAILED, and its message the story, where the result is wrong.
    """
    ended = call(["check", exported, "--output", output, "--json", *words_of(declared)])
    try:
        row: Row = json.loads(ended.out)
    except ValueError:
        raise error_of(ended) from None
    return row


def read(file: Path) -> Rows:
    """Returns the rows of a results file, FILE.jsonl of --out or --resume.

    A last line that was cut in the middle, as a program that was ended leaves it, is left out.
    """
    rows, context = [], {}
    for line in pathlib.Path(file).read_text(encoding="utf-8").split("\n")[:-1]:
        found = json.loads(line)
        if found.get("kind") == "row":
            rows.append(found)
        elif found.get("kind") == "context":
            context = found
    return Rows(rows, context)


def _plain(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.path.abspath(value)
    if hasattr(value, "tolist"):  # numbers and arrays of NumPy
        return value.tolist()
    raise TypeError(f"a field of a scenario cannot hold {value!r}")


def _files(scenario: Union[Scenario, Sequence[Scenario]]) -> List[str]:
    if isinstance(scenario, (str, os.PathLike)):
        return [os.fspath(scenario)]
    if isinstance(scenario, Mapping):
        scenario = Case(scenario)
    if isinstance(scenario, Case):
        return [str(scenario.file())]
    return [file for one in scenario for file in _files(one)]


def _rows(command: str, files: List[str], backends: Backends, quiet: bool, must_pass: bool,
          options: Mapping[str, Any]) -> Rows:
    with tempfile.TemporaryDirectory(prefix="lora-bench-") as folder:
        results = pathlib.Path(folder) / "rows.jsonl"
        ended: Ended = call([command, *files, "--out", results,
                             *words_of({"backends": backends, "quiet": quiet, **options})], quiet)
        rows = read(results) if results.exists() else None
    if rows is None or ended.exit_code < 0 or ended.exit_code in (1, 5):
        raise error_of(ended, rows)
    rows.exit_code, rows.table, rows.summary = ended
    if must_pass and ended.exit_code != 0:
        raise error_of(ended, rows)
    return rows
