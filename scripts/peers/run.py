#!/usr/bin/env python3
"""Proves and times one peer on cases that `lora-bench export` wrote, and appends a row for each.

  scripts/peers/run.py --cases DIR --peer torch-bmm --tool build/release/src/lora-bench --out peers.jsonl

Peers: numpy, torch-loop, torch-bmm, torch-grouped, vllm, sglang-csgmv, sglang-triton, flashinfer, or a
file of yours (docs/peers.md). One process runs one peer. Exit codes are those of `lora-bench run`.
"""
import argparse
import importlib
import importlib.util
import json
import shlex
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

try:
    import numpy as np
except ImportError:
    print(f"run.py: {sys.executable} has no NumPy: {sys.executable} -m pip install numpy, or for the Python of Debian "
          "and Ubuntu apt-get install python3-numpy", file=sys.stderr)
    sys.exit(5)

from arrays import Missing, arrays_of
from clocks import clock_for
from exported import Case, write_results
from turns import Turns
import after_timing
import base_product
import conditions
import timing

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))
from plotting.doubts import doubt_about  # noqa: E402
from plotting.rows import Row, UsageError  # noqa: E402

PASS, USAGE, WRONG, INCONCLUSIVE, ENVIRONMENT = 0, 1, 2, 4, 5
CODES = {"PASSED": PASS, "FAILED": WRONG, "ERROR": WRONG, "MISTRUSTED": INCONCLUSIVE, "SKIPPED": PASS}
USUAL_OUT = "peers.jsonl"
NOT_HERE = "not here"  # in place of what a peer is
PARTS_OF_PEER = ("LIBRARY", "available", "supports", "declared", "prepare", "operands", "launch")
WHOLE_PEER = "docs/peers.md, 'A peer of yours', shows a whole one"


class Fault(Exception):
    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


def load_file(name):
    """The module of a peer in a file of the user's."""
    spec = importlib.util.spec_from_file_location(Path(name).stem, name)
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise Fault(USAGE, f"{error.filename}:{error.lineno}: {error.msg}; {WHOLE_PEER}") from error
    except Exception as error:
        raise Fault(USAGE, f"{name}: cannot be loaded: {type(error).__name__}: {error}; {WHOLE_PEER}") from error
    missing = [part for part in PARTS_OF_PEER if not hasattr(module, part)]
    if missing:
        raise Fault(USAGE, f"{name}: lacks {', '.join(missing)}; {WHOLE_PEER}")
    if module.LIBRARY not in ("torch", "numpy"):
        raise Fault(USAGE, f"{name}: LIBRARY is {module.LIBRARY!r}; it must be 'torch' or 'numpy'; {WHOLE_PEER}")
    return module


def load_peer(name):
    """The module of a peer; `name` is one of ours, or the path of a Python file."""
    if name.endswith(".py"):
        if not Path(name).is_file():
            raise Fault(USAGE, f"there is no file {name}")
        return Path(name).stem, load_file(name)
    known = sorted(path.stem[5:].replace("_", "-") for path in Path(__file__).parent.glob("peer_*.py"))
    if name not in known:
        raise Fault(USAGE, f"unknown peer '{name}'; known: {', '.join(known)}, or the path of a .py file")
    return name, importlib.import_module("peer_" + name.replace("-", "_"))


def open_case(file):
    try:
        return Case(file)
    except OSError as error:
        raise Fault(USAGE, f"{error.filename}: cannot be read: {error.strerror}; "
                           "`lora-bench export` writes ID.safetensors and ID.json") from error
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise Fault(USAGE, f"{file}: not what `lora-bench export` wrote: {error}; export it again") from error


def find_cases(places, wanted):
    files = []
    for place in map(Path, places):
        files += [place] if place.suffix == ".safetensors" else sorted(place.glob("*.safetensors"))
    named = ", ".join(places)
    cases = [open_case(file) for file in files]
    if not cases:
        raise Fault(USAGE, f"no *.safetensors in {named}; "
                           "lora-bench export SCENARIO --backends NAME --to DIR writes them")
    known = [case.id for case in cases]
    for name in wanted:
        if name not in known:
            raise Fault(USAGE, f"there is no case '{name}' in {named}; there are: {', '.join(known)}")
    return [case for case in cases if not wanted or case.id in wanted]


class Tool:
    """The lora-bench that judges."""

    def __init__(self, path):
        self.path = path
        self.contexts = [json.loads(line) for line in self.run("device", "--json").stdout.splitlines()]
        # Of a row, as the tool writes them: a line of the list begins with its key, below a heading.
        self.columns = [line.split()[0] for line in self.run("list", "metrics").stdout.splitlines() if line[:1] == " "]
        # Of the same form, with what is said of one further in.
        self.backends = [line.split()[0] for line in self.run("list", "backends").stdout.splitlines()
                         if line[:2] == "  " and line[2:3].strip()]

    def run(self, *arguments):
        try:
            done = subprocess.run([self.path, *arguments], capture_output=True, text=True, check=False)
        except OSError as error:
            raise Fault(USAGE, f"cannot run {self.path}: {error}; name the built lora-bench with --tool") from error
        if done.returncode not in (PASS, WRONG, INCONCLUSIVE):
            code = USAGE if done.returncode == USAGE else ENVIRONMENT
            raise Fault(code, f"{Path(self.path).name} {arguments[0]}: {done.stderr.strip() or done.returncode}")
        return done

    def context(self, arrays):
        """First line of a results file for where the arrays are."""
        kind = "cuda" if arrays is not None and arrays.on_gpu else "cpu"
        found = next((context for context in self.contexts if context["device_kind"] == kind), None)
        if found is None:  # a build without CUDA: nothing of ours was measured on this device
            properties = arrays.torch.cuda.get_device_properties(0)
            found = {**self.contexts[0], "device_kind": kind, "device_name": properties.name,
                     "device_identity": "", "cache_bytes": properties.L2_cache_size, "driver": "",
                     "runtime": arrays.torch.version.cuda}
        return {**found, "argv": sys.argv}

    def verdict(self, case, results, declared):
        with tempfile.TemporaryDirectory() as folder:
            result = Path(folder) / "result.safetensors"
            write_results(result, results)
            options = [word for key, value in declared.items()
                       for word in (["--" + key] if value is True else ["--" + key, str(value)])]
            options += ["--before", "before"] if "before" in results else []
            return json.loads(self.run("check", str(case.path), "--output", str(result), "--json", *options).stdout)


def in_shape(case, output, arrays):
    """An output in the shape of the export: what no peer is given, is as it was before."""
    values, kind = arrays.given_back(output, case.dtype)
    if not case.meta["expand"]:
        return values, kind
    before, stored = case.stored("y_before")
    if kind == stored and values.shape == before.shape:
        return values, kind
    whole = np.array(before) if kind == stored else arrays.given_back(arrays.take(np.array(before), stored), stored)[0]
    whole[:, case.columns] = values
    return whole, kind


def prove_and_time(case, peer, arrays, tool, timed, turns):
    turns.together()
    clock, device = clock_for(arrays), tool.context(arrays)
    sets = timing.Sets(case, peer, arrays, device["cache_bytes"], clock.most_sets)
    declared, arithmetic = peer.declared(case)
    results, wrong = {}, ""
    if case.layer:
        clock.load(sets.base_launches)
        sets.restore()
        clock.run()
        wrong = base_product.wrong(case, arrays, sets.inputs[0], sets.base_weights[0], sets.output())
        results["before"] = in_shape(case, arrays.copied(sets.output()), arrays)
    clock.load(sets.launches)
    sets.restore()
    clock.run()  # what is proved is what a clock runs
    proved = arrays.copied(sets.output())
    results["output"] = in_shape(case, proved, arrays)
    turns.away()
    row = tool.verdict(case, results, declared)
    row.update(numerics=arithmetic, mode=clock.mode)
    if wrong:
        row.update(status="FAILED", message=wrong)
    if row["status"] != "PASSED" or not timed:
        return row
    turns.together()
    sets.fill()
    arrays.settle()
    turns.alone()
    sequence = timing.Sequence(sets, clock, clock_for(arrays) if case.layer else None)
    samples, base, warning = timing.collect(sequence, case.meta["measure"])
    row.update(timing.columns_of(samples, warning, sequence),
               **(conditions.columns_of(device["device_identity"]) if arrays.on_gpu else {}))
    turns.together()
    if case.layer:
        columns, note = timing.tax_columns(samples, base, row["noise_us"])
        row.update(columns, warning="; ".join(filter(None, [row["warning"], note])))
    if row.get("throttle"):
        row["warning"] = "; ".join(filter(None, [f"throttled: {row['throttle']}", row["warning"]]))
    wrong = after_timing.wrong(sequence, proved)
    if wrong:
        row.update(status="FAILED", message="wrong after timing: " + wrong)
    return row


def unproved(case, tool, status, message, mode):
    """A row of what was not proved: with every column, null where nothing is known."""
    known = {**case.meta["row"], "repetition": 0, "status": status, "message": message, "mode": mode}
    return {"kind": "row", **dict.fromkeys(tool.columns), **known}


def why_not(case, peer):
    """Why a peer does not do a case; None where it does. What is asked beyond the plain op, none does."""
    return f"does the plain op alone, not {case.semantics}" if case.semantics else peer.supports(case)


def row_of(case, peer, arrays, tool, timed, turns):
    mode = "graph" if arrays.on_gpu else "host"
    try:
        reason = why_not(case, peer)
        if reason:
            return unproved(case, tool, "SKIPPED", reason, mode)
        return prove_and_time(case, peer, arrays, tool, timed, turns)
    except Fault:
        raise
    except Exception as error:  # one row is lost, not the others
        traceback.print_exc()
        return unproved(case, tool, "ERROR", f"{type(error).__name__}: {error}".splitlines()[0][:500], mode)
    finally:
        turns.together()
        arrays.release()
        turns.away()


def compile_all(cases, peer, arrays, turns):
    """Launches each case once, so that what is compiled for it lies in the cache of the compiler; proves nothing."""
    for case in cases:
        turns.together()
        try:
            if not why_not(case, peer):
                timing.Sets(case, peer, arrays, 0, 1).launches[0]()
        except Exception as error:  # its row will tell
            print(f"{case.id}: {type(error).__name__}: {error}", file=sys.stderr)
        arrays.release()
        turns.away()


def told(row):
    line = f"{row['status']:<10} {row['case']} on {row['backend']}"
    if row.get("time_us") is not None and row["status"] == "PASSED":
        line += f": {row['time_us']:.2f} us"
    return line + (f"\n  {row['message']}" if row.get("message") else "")


def worst(codes, statuses):
    for code in (ENVIRONMENT, WRONG, INCONCLUSIVE):
        if code in codes:
            return code
    return PASS if "PASSED" in statuses else INCONCLUSIVE


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(USAGE, f"{self.format_usage()}run.py: {message}\n")


def parse():
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--cases", nargs="+", required=True, metavar="DIR", help="folders, or files, that `lora-bench export` wrote")
    add("--case", action="append", default=[], metavar="ID", help="only this case; may be given again")
    add("--peer", required=True, help="its name, or a .py file")
    add("--label", help="its name in the rows, to tell two versions apart; without it that of --peer")
    add("--unpacked", metavar="DIR", help="where unpack.py laid the peer's modules; without it the installed package")
    add("--tool", default=str(ROOT / "build/release/src/lora-bench"), help="the built lora-bench")
    add("--out", metavar="FILE.jsonl", help=f"rows are appended to it (default: {USUAL_OUT})")
    add("--device", choices=("cuda", "cpu"), help="without it a GPU where PyTorch finds one")
    add("--no-time", action="store_true", help="prove only")
    add("--compile", action="store_true", help="launch each case once alone, so that its kernels lie in a cache")
    add("--resume", action="store_true", help="leave out cases that have a row of this peer in --out")
    add("--time-limit", type=float, metavar="SECONDS", help="begin no case after so long; the others stay for --resume")
    add("--turns", metavar="FILE", help="runs that name the same one share the GPU, and are timed one by one")
    return parser.parse_args()


def again(options, case):
    """The command that makes the row of one case."""
    words = ["scripts/peers/run.py", "--cases", str(case.path), "--peer", options.peer]
    for name in ("label", "unpacked", "device"):
        words += [f"--{name}", getattr(options, name)] if getattr(options, name) else []
    return shlex.join(words + (["--no-time"] if options.no_time else []))


def open_out(name):
    """The file that rows are appended to."""
    if name is None:
        print(f"run.py: rows are appended to {USUAL_OUT}; --out names another file", file=sys.stderr)
        name = USUAL_OUT
    try:
        out = open(name, "a+", errors="replace")
    except OSError as error:
        raise Fault(ENVIRONMENT, f"--out {name}: cannot be written: {error.strerror}") from error
    if out.seekable():
        out.seek(0)
        if out.read(8) not in ("", '{"kind":'):
            raise Fault(USAGE, f"--out {name}: holds what lora-bench did not write; name another file")
    return out


def names_of(row):
    return row["scenario"], row["case"]


def refuse_others(file, row, context, peer, device):
    """Rows of another version or device than this run's are not resumed: the file would have some of each."""
    for known, now in ((row["peer"], peer), *((context.get(key, device[key]), device[key])
                                              for key in ("device_name", "device_identity"))):
        if known != now:
            raise Fault(USAGE, f"--resume: {file} has a row of {row['backend']} of '{known}', this run is of '{now}': "
                               "name another file")


def refuse_doubtful(place, row, case):
    """What no run wrote, or a run of another case, is no row to build on: as `lora-bench run --resume` has it."""
    try:
        doubt = doubt_about(Row(row, row.get("point") or {}, place, {}))
    except UsageError as error:
        doubt = str(error)
    if row["status"] not in CODES:
        doubt = f"status is '{row['status']}'"
    for key in ("cache", "bytes", "weight_bytes", "flops"):
        known = case.meta["row"][key]
        if not doubt and row[key] != known:
            doubt = f"{key} is '{row[key]}', of the case '{known}'"
    if doubt:
        raise Fault(USAGE, f"--resume: {place}: {doubt}; no run writes that: name another file")


def rows_in(out, backend, peer, device, cases, timed):
    """By scenario and case, all rows that an earlier run left: a later one takes back no earlier. Where times are
    asked, none that were only proved."""
    known, rows, context = {names_of(case.meta["row"]): case for case in cases}, {}, {}
    out.seek(0)
    for number, line in enumerate(out, start=1):
        place = f"{out.name}:{number}"
        try:
            row = json.loads(line)
        except ValueError:  # cut in the middle
            continue
        try:
            if row["kind"] == "context":
                context = row
                continue
            case = known.get(names_of(row))
            if row["backend"] != backend or case is None or row["content"] != case.meta["row"]["content"]:
                continue
            if row["peer"] == NOT_HERE != peer:
                continue  # installed since
            if peer != NOT_HERE:
                refuse_others(out.name, row, context, peer, device)
            refuse_doubtful(place, row, case)
            if not (timed and row["status"] == "PASSED" and row["time_us"] is None):
                rows.setdefault(names_of(row), []).append(row)
        except (AttributeError, LookupError, TypeError) as error:
            raise Fault(USAGE, f"--resume: {place}: no row that run.py wrote ({type(error).__name__}: {error}); "
                               "name another file") from error
    return rows


def refuse_our_name(label, tool):
    """Rows of a peer under the name of a backend would stand, and be counted, for that backend."""
    if label in tool.backends or label.startswith(("mutant:", "fake:")):
        raise Fault(USAGE, f"'{label}' is the name of a backend of lora-bench; give the peer another with --label")


def main():
    begin = time.perf_counter()
    options = parse()
    if options.out is not None and Path(options.out).suffix != ".jsonl":
        raise Fault(USAGE, f"--out {options.out}: rows are JSON lines alone; name a file that ends in .jsonl")
    cases = find_cases(options.cases, options.case)
    name, peer = load_peer(options.peer)
    tool = Tool(options.tool)
    refuse_our_name(options.label or name, tool)
    arrays, identity, reason, turns = None, NOT_HERE, "", Turns(options.turns)
    turns.together()  # a peer may try itself on the GPU
    try:
        arrays = arrays_of(peer.LIBRARY, options.device)
        identity = peer.available(options.unpacked)
    except Missing as missing:
        reason = str(missing)
    except Exception as error:
        raise Fault(ENVIRONMENT, f"{options.peer}: available() ended with {type(error).__name__}: {error}; "
                                 "what cannot run here raises arrays.Missing (docs/peers.md)") from error
    turns.away()
    if options.compile:
        compile_all(cases if not reason else [], peer, arrays, turns)
        return PASS if not reason else INCONCLUSIVE
    label, context = options.label or name, tool.context(arrays)
    with open_out(options.out) as out:
        done = rows_in(out, label, identity, context, cases, not options.no_time) if options.resume else {}
        statuses = {row["status"] for rows in done.values() for row in rows}
        missing = [case for case in cases if names_of(case.meta["row"]) not in done]
        if not missing:
            print(f"run.py: all {len(cases)} cases have a row of {label} there; without --resume they run again",
                  file=sys.stderr)
        out.write(json.dumps(context) + "\n")
        for number, case in enumerate(missing):
            began = time.perf_counter()
            if options.time_limit is not None and began - begin >= options.time_limit:
                print(f"run.py: {len(missing) - number} of {len(cases)} cases are left, from {case.id} on: "
                      "--time-limit ended; --resume goes on", file=sys.stderr)
                return worst({CODES[status] for status in statuses} | {INCONCLUSIVE}, statuses)
            if reason:
                row = unproved(case, tool, "SKIPPED", reason, "")
            else:
                row = row_of(case, peer, arrays, tool, not options.no_time, turns)
            row.update(backend=label, peer=identity, repro=again(options, case), wall_s=time.perf_counter() - began)
            out.write(json.dumps(row) + "\n")
            out.flush()
            print(told(row), flush=True)
            statuses.add(row["status"])
    return worst({CODES[status] for status in statuses}, statuses)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Fault as fault:
        print(f"run.py: {fault}", file=sys.stderr)
        sys.exit(fault.code)
    except OSError as error:
        print(f"run.py: {error}", file=sys.stderr)
        sys.exit(ENVIRONMENT)
    except KeyboardInterrupt:
        sys.exit(INCONCLUSIVE)
