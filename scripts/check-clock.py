#!/usr/bin/env python3
"""Our times against another clock: ncu's duration of the same kernels.

Each case is shrink or expand alone, timed by lora-bench with cold operands, and profiled by ncu where
--profile launches it once more, over operands that no cache holds any more: ncu leaves caches and
clocks as they are. Within 3 % above 10 us, within 0.5 us below.

Most cases are one kernel. Of several (auto, panel, what sets h to zero) the durations are summed. ncu runs
kernels one after another, each by itself: the gap between two, and what one does while the other
still runs, is in our time alone. So each kernel after the first allows half a microsecond more.

  scripts/check-clock.py [--tool build/gpu-check/src/lora-bench] [--backends grouped,chunked,...]
                         [--case GLOB]...
"""
import argparse
import csv
import io
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCENARIO = ROOT / "scenarios" / "clock.yaml"
# One pass each, as a second would find in the cache what the first has read.
DURATION = "gpu__time_duration.sum"
MEMORY = "dram__bytes_read.sum,smsp__cycles_elapsed.avg.per_second"
HITS = "lts__t_sector_hit_rate.pct"
UNITS = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3,
         "byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9,
         "Mhz": 1e-3, "Ghz": 1.0, "hz": 1e-9, "%": 1.0}

USAGE, INCONCLUSIVE, ENVIRONMENT = 1, 4, 5


def leave(code, text):
    print(f"check-clock.py: {text}", file=sys.stderr)
    sys.exit(code)


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(USAGE, f"{self.format_usage()}check-clock.py: {message}\n")


def said(text):
    """What a run of minutes is doing."""
    print(f"check-clock.py: {text}", file=sys.stderr, flush=True)


def our_rows(tool, asked):
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rows.jsonl"
        done = subprocess.run([tool, "run", SCENARIO, *asked, "--out", out, "--quiet"],
                              stdout=subprocess.DEVNULL, check=False)
        lines = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    rows = [row for row in lines if row["kind"] == "row" and row["status"] == "PASSED"]
    if not rows:
        leave(done.returncode if done.returncode > 0 else INCONCLUSIVE,
              f"{tool} run {SCENARIO} {' '.join(asked)} leaves no PASSED row to compare")
    return rows


def name_of(row):
    """What --profile calls the range of a row."""
    return f"{row['case']} {row['backend']}"


def row_of_kernel(kernel, names):
    """The name before the kernel's own in "CASE BACKEND/void kernel<...>(...)", None where none of them is.
    Cases and signatures may hold slashes themselves, so the names are looked for, the longest first."""
    within = kernel.removeprefix("lora-bench/")  # the range around all of them
    return next((name for name in sorted(names, key=len, reverse=True) if f"{within}/".startswith(f"{name}/")), None)


def value_of(line, metrics):
    unit = line["Metric Unit"]
    try:
        return float(line["Metric Value"].replace(",", "")) * UNITS[unit]
    except (KeyError, ValueError):
        leave(ENVIRONMENT, f"ncu gives {metrics} as '{line['Metric Value']}' in '{unit}', which this script "
                           "cannot read")


def profiled(tool, asked, metrics, names):
    """Of each row, by its name: a list with the metrics of each kernel."""
    command = ["ncu", "--nvtx", "--nvtx-include", "lora-bench/", "--print-nvtx-rename", "kernel",
               "--cache-control", "none", "--clock-control", "none", "--csv", "--metrics", metrics,
               tool, "run", str(SCENARIO), *asked, "--profile"]
    said(f"ncu takes {metrics} of {len(names)} rows")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0 or '"ID"' not in done.stdout:
        leave(ENVIRONMENT, f"{' '.join(command)}: {done.stdout[-500:]}{done.stderr[-500:]}")
    if any(int(passes) > 1 for passes in re.findall(r"(\d+) passes", done.stdout + done.stderr)):
        leave(ENVIRONMENT, f"ncu needs several passes for {metrics}; ask for less")
    rows, strange = {}, []
    for line in csv.DictReader(io.StringIO(done.stdout[done.stdout.index('"ID"'):])):
        if not (line.get("Metric Name") or "").strip():
            continue
        name = row_of_kernel(line["Kernel Name"], names)
        if name is None:
            strange.append(line["Kernel Name"])
            continue
        kernels = rows.setdefault(name, {})
        kernels.setdefault(line["ID"], {})[line["Metric Name"]] = value_of(line, metrics)
    for name in names:
        if name not in rows:
            others = ", ".join(map(repr, list(dict.fromkeys(strange))[:3])) or "those of other rows"
            leave(ENVIRONMENT, f"ncu shows no kernel of '{name}', only {others}; rows are told apart by "
                               "--print-nvtx-rename kernel, which this ncu may write in another form")
    return {name: list(kernels.values()) for name, kernels in rows.items()}


def main():
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", default=str(ROOT / "build/gpu-check/src/lora-bench"))
    parser.add_argument("--backends", default="naive,grouped,chunked")
    parser.add_argument("--case", action="append", default=[], help="as in lora-bench run")
    options = parser.parse_args()
    asked = ["--backends", options.backends, *(word for case in options.case for word in ("--case", case))]
    if shutil.which(options.tool) is None:
        leave(USAGE, f"cannot run {options.tool}; name the built lora-bench with --tool")
    if shutil.which("ncu") is None:
        leave(ENVIRONMENT, "no ncu in the PATH; Nsight Compute has it, beside the CUDA toolkit")
    rows = our_rows(options.tool, asked)
    names = [name_of(row) for row in rows]
    durations, memory, hits = (profiled(options.tool, asked, metrics, names)
                               for metrics in (DURATION, MEMORY, HITS))
    worst = 0
    print("| case | backend | kernels | ours us | ncu us | difference | ncu GHz | L2 hits % | "
          "read from memory / bytes | |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |")
    for row in rows:
        name = name_of(row)
        theirs = sum(kernel[DURATION] for kernel in durations[name])
        longest = max(memory[name], key=lambda kernel: kernel["dram__bytes_read.sum"])
        read = sum(kernel["dram__bytes_read.sum"] for kernel in memory[name])
        ours = row["time_us"]
        allowed = (0.03 * theirs if theirs > 10 else 0.5) + 0.5 * (len(durations[name]) - 1)
        agrees = abs(ours - theirs) <= allowed
        worst = worst if agrees else 3
        print(f"| {row['case']} | {row['backend']} | {len(durations[name])} | {ours:.2f} | "
              f"{theirs:.2f} | {100 * (ours / theirs - 1):+.1f} % | "
              f"{longest['smsp__cycles_elapsed.avg.per_second']:.2f} | "
              f"{max(kernel[HITS] for kernel in hits[name]):.0f} | {read / row['bytes']:.2f} | "
              f"{'agrees' if agrees else 'DIFFERS'} |")
    return worst


if __name__ == "__main__":
    sys.exit(main())
