#!/usr/bin/env python3
"""How often `compare` is right on this machine: what docs/comparing.md promises, measured.

Runs one scenario again and again and compares each run with the one before, as README does. Of the same
code no more than one comparison in a hundred may end with exit code 3, on an idle machine and beside a
load; of a kernel that takes 20 % longer most should. Three conditions, each for --time-limit seconds:

  idle    the same code, nothing else started by this script
  load    the same code, beside processes that keep cores busy and read memory, on and off
  slower  examples/plugin/mine.cpp against the same with -DMINE_SLOWER_PCT=20 (needs g++)

  scripts/check-gate.py [--tool build/release/src/lora-bench] [--time-limit 300] [--only load] [--in-turn]

With --in-turn a run is one repeat of base, one of new, and so on, as docs/comparing.md does in CI.
Exit codes: 0 the promise holds in what was run, 3 it does not, 4 too few slower runs were found or none ended.
"""
import argparse
import collections
import math
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAMES = {0: "no regression", 2: "broken", 3: "slower", 4: "inconclusive"}
PROMISED = 0.01


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", default=str(ROOT / "build/release/src/lora-bench"))
    parser.add_argument("--scenario", default="smoke")
    parser.add_argument("--backends", default="cpu")
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--threshold", default="", help="of compare; default: the scenario's")
    parser.add_argument("--time-limit", type=float, default=300, help="seconds for each condition")
    parser.add_argument("--only", action="append", choices=["idle", "load", "slower"])
    parser.add_argument("--in-turn", action="store_true")
    return parser.parse_args()


def disturb(seed):
    """Keeps a core busy and memory moving for some seconds, rests, and begins again."""
    drawn = random.Random(seed)
    block = bytearray(64 << 20)
    while True:
        end = time.monotonic() + drawn.uniform(0.2, 8)
        while time.monotonic() < end:
            block[:] = bytes(block)
        time.sleep(drawn.uniform(0.2, 8))


class Load:
    """As many such processes as there are cores, ended with the block."""

    def __init__(self, wanted):
        self.processes = [multiprocessing.Process(target=disturb, args=(seed,), daemon=True)
                          for seed in range(os.cpu_count() if wanted else 0)]

    def __enter__(self):
        for process in self.processes:
            process.start()

    def __exit__(self, *_):
        for process in self.processes:
            process.terminate()
            process.join()


class Gate:
    def __init__(self, options, folder):
        self.options = options
        self.folder = Path(folder)

    def run(self, backends, out, repeats, resume):
        done = subprocess.run([self.options.tool, "run", self.options.scenario, "--backends", backends,
                               "--repeat", str(repeats), "--resume" if resume else "--out", out, "--quiet"],
                              capture_output=True, text=True, check=False)
        if done.returncode not in (0, 4):
            sys.exit(f"{' '.join(map(str, done.args))} ended with {done.returncode}:\n{done.stderr}")

    def measured(self, backends, name):
        """Two files, of base and of new, in turn or one after the other."""
        files = [self.folder / f"{name}-{which}.jsonl" for which in ("base", "new")]
        for repeats in range(1, self.options.repeat + 1) if self.options.in_turn else [self.options.repeat]:
            for spelling, file in zip(backends, files):
                self.run(spelling, file, repeats, self.options.in_turn)
        return files

    def compare(self, base, new):
        wider = ["--threshold", self.options.threshold] if self.options.threshold else []
        return subprocess.run([self.options.tool, "compare", base, new, *wider],
                              capture_output=True, check=False).returncode

    def pairs_of_same(self, backend, end):
        """Exit codes of comparisons of the same code; a run is new once and base once."""
        before, count = None, 0
        while time.monotonic() < end:
            count += 1
            if self.options.in_turn:
                yield self.compare(*self.measured([backend, backend], f"same-{count}"))
                continue
            run = self.folder / f"same-{count}.jsonl"
            self.run(backend, run, self.options.repeat, False)
            if before:
                yield self.compare(before, run)
            before = run

    def pairs_of_slower(self, backends, end):
        count = 0
        while time.monotonic() < end:
            count += 1
            yield self.compare(*self.measured(backends, f"slower-{count}"))

    def tell(self, condition, codes):
        counts = collections.Counter(codes)
        total = sum(counts.values())
        each = ", ".join(f"{counts[code]} with {code} ({NAMES.get(code, 'failed')})" for code in sorted(counts))
        print(f"{condition}: {total} comparisons: {each or 'none ended in time'}", flush=True)
        return counts, total


def by_chance(alarms, total):
    """How likely so many or more of so many are where each has the promised chance."""
    return sum(math.comb(total, k) * PROMISED**k * (1 - PROMISED)**(total - k) for k in range(alarms, total + 1))


def plugins(folder):
    spellings = []
    for name, fault in (("right", []), ("slower", ["-DMINE_SLOWER_PCT=20"])):
        file = Path(folder) / f"lib{name}.so"
        subprocess.run(["g++", "-O2", "-std=c++17", "-shared", "-fPIC", f"-I{ROOT / 'include'}", *fault,
                        "-o", file, ROOT / "examples/plugin/mine.cpp"], check=True)
        spellings.append(f"mine={file}")
    return spellings


def main():
    options = parsed()
    code = 0
    with tempfile.TemporaryDirectory() as folder:
        gate = Gate(options, folder)
        for condition in options.only or ["idle", "load", "slower"]:
            begun = os.getloadavg()[0]
            end = time.monotonic() + options.time_limit
            with Load(condition == "load"):
                if condition == "slower":
                    counts, total = gate.tell("slower by 20 %", gate.pairs_of_slower(plugins(folder), end))
                    bad = 0 if total and 2 * counts[3] > total else 4
                else:
                    counts, total = gate.tell(f"same code, {condition}", gate.pairs_of_same(options.backends, end))
                    bad = 4 if total == 0 else 3 if by_chance(counts[3], total) < PROMISED else 0
            print(f"  load average at the start {begun:.1f} on {os.cpu_count()} cores", flush=True)
            code = bad if code == 0 or bad == 3 else code
    return code


if __name__ == "__main__":
    sys.exit(main())
