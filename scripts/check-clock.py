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
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from nsight import ENVIRONMENT, INCONCLUSIVE, ROOT, Parser, give_up, kernels_of, leave, ncu, need, said

SCENARIO = ROOT / "scenarios" / "clock.yaml"
# One pass each, as a second would find in the cache what the first has read.
DURATION = "gpu__time_duration.sum"
MEMORY = "dram__bytes_read.sum", "smsp__cycles_elapsed.avg.per_second"
HITS = "lts__t_sector_hit_rate.pct"


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


def profiled(tool, asked, metrics, names):
    """Of each row, by its name: a list with the metrics of each kernel."""
    said(f"ncu takes {', '.join(metrics)} of {len(names)} rows")
    done = ncu(tool, [SCENARIO, *asked], metrics, "--cache-control", "none")
    rows = kernels_of(done, names)
    if any(int(passes) > 1 for passes in re.findall(r"(\d+) passes", done.stdout + done.stderr)):
        leave(ENVIRONMENT, f"ncu needs several passes for {', '.join(metrics)}; ask for less")
    if any(kernel.get(metric) is None for kernels in rows.values() for kernel in kernels for metric in metrics):
        give_up(done)
    return rows


def main():
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", default=str(ROOT / "build/gpu-check/src/lora-bench"))
    parser.add_argument("--backends", default="naive,grouped,chunked")
    parser.add_argument("--case", action="append", default=[], help="as in lora-bench run")
    options = parser.parse_args()
    asked = ["--backends", options.backends, *(word for case in options.case for word in ("--case", case))]
    need(options.tool)
    rows = our_rows(options.tool, asked)
    names = [name_of(row) for row in rows]
    durations, memory, hits = (profiled(options.tool, asked, metrics, names)
                               for metrics in ([DURATION], MEMORY, [HITS]))
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
