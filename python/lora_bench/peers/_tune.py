"""Searches launch parameters of vLLM's or SGLang's kernels on this GPU: each candidate is a backend, proved and timed by
the program as any other, and what is found is written into the files that the engines load."""

import importlib
import math
import pathlib
import tempfile
import time
import types

import lora_bench
from lora_bench import peers
from lora_bench.peers import _candidate, _search, _tuned_files
from lora_bench.peers._tuned_files import Found, Shape

ENGINES = {"vllm": {"vllm": _search.VLLM},
           "sglang": {"sglang_csgmv": _search.CSGMV, "sglang_triton_v2": _search.DENSE}}
# A candidate has to be told from another, not known to a per cent.
QUICK = {"measure.warmup_ms": 20, "measure.min_time_ms": 20, "measure.max_time_ms": 100, "verify.max_rows": 64}

MOST_AT_ONCE = 64  # shapes of candidates in a process


def shape_of(row):
    widths = tuple(int(width) for width in row["out_features"].split("+"))
    return Shape(row["slots"], row["tokens"], row["rank"], row["in_features"], widths, row["op"] == "logits")


def problem_of(shape):
    """As much of a problem as launch parameters are chosen by."""
    return types.SimpleNamespace(slots=shape.slots, tokens=shape.tokens, max_rank=shape.rank, in_features=shape.in_features,
                                 widths=list(shape.widths), slices=len(shape.widths), op="logits" if shape.logits else "linear")


def times_by_shape(rows, backend):
    """Of each shape the sum of its cases' times, and of their noise; none where one of them did not pass."""
    times = {}
    for row in rows:
        if row["backend"] == backend:
            known = times.setdefault(shape_of(row), [])
            known.append((row["time_us"], row["noise_us"]) if row["status"] == "PASSED" and row["time_us"] else None)
    return {shape: (sum(us for us, _ in all_of), sum(noise for _, noise in all_of))
            for shape, all_of in times.items() if None not in all_of}


class Bench:
    """Times a list of candidates, each a table of {Shape: parameters}."""

    def __init__(self, peer, folder, run, end=math.inf, now=time.monotonic):
        self.peer, self.folder, self.run, self.count = peer, pathlib.Path(folder), run, 0
        self.end, self.now, self.left_out = end, now, 0

    def times_of(self, candidates):
        """Many in one process, which has to start and to load the engine; one that ends it takes no more than those along.
        No process begins after `end`."""
        files = []
        for candidate in candidates:
            self.count += 1
            files.append(_candidate.write(self.folder / f"c{self.count}.py", self.peer, candidate))
        rows = []
        shapes = max(map(len, candidates), default=0)
        at_once = max(1, MOST_AT_ONCE // max(1, shapes))
        for first in range(0, len(files), at_once):
            if self.now() >= self.end:
                self.left_out += len(files) - first
                break
            rows += self.run([str(file) for file in files[first:first + at_once]])
        return [times_by_shape(rows, file.stem) for file in files]


def tune(engine, out, run, say, passes=1, seconds=math.inf):
    """Returns how many shapes were searched, how many got quicker and which files were written, those of a kernel as soon
    as it was searched. `run` takes backends and returns rows. Kernels of an engine have an equal share of the seconds."""
    searched, quicker, written = 0, 0, []
    end = time.monotonic() + seconds
    for number, (peer, space) in enumerate(ENGINES[engine].items()):
        share = (end - time.monotonic()) / (len(ENGINES[engine]) - number)
        module = importlib.import_module(f"lora_bench.peers.{peer}")
        module.load()
        name = "peer:" + peer.replace("_", "-")
        rows = run([name])
        as_shipped = times_by_shape(rows, name)
        for row in rows:
            if row["status"] != "PASSED":
                say(f"{name}: {row['case']} as shipped is {row['status']}: {row['message']}; its shape is left out")
        shipped = {shape: module.shipped(problem_of(shape)) for shape in as_shipped}
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(peer, folder, run, time.monotonic() + share)
            best = _search.search(as_shipped, shipped, space, bench.times_of, passes,
                                  lambda line, name=name: say(f"{name}: {line}"))
        if bench.left_out:
            say(f"{name}: {bench.left_out} of {bench.count} candidates were not tried, as the time was over (--time-limit)")
        found = [Found(shape, *its) for shape, its in best.items()]
        searched += len(found)
        quicker += sum(one.quotient < 1 for one in found)
        for name, text in (module.tuned_files(found) if found else {}).items():
            file = pathlib.Path(out, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            written.append(name)
    return searched, quicker, sorted(written)


def main(options):
    def run(backends):
        return lora_bench.run(options.scenarios, backends=backends, case=options.case or None,
                              set={**QUICK, **dict(one.split("=", 1) for one in options.set)})

    try:
        searched, quicker, files = tune(options.engine, options.out, run, lambda line: print(line, flush=True),
                                        options.passes, options.time_limit)
    except peers.Missing as missing:
        raise lora_bench.MachineError(str(missing)) from missing
    print(f"{searched} shapes searched, {quicker} quicker than as shipped; in {options.out}: {', '.join(files) or 'nothing'}")
    return 0 if searched else 4
