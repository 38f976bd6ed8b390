#!/usr/bin/env python3
"""Why a launch takes as long as it does: what NVIDIA's profiler (ncu) counts in each of its kernels.

A table on stdout: how much of the GPU's memory, L2, tensor cores, multiprocessors and places for warps
a kernel uses, and what its warps waited for, as shares of the time that they were there. No time or
proof of ours: those are of `lora-bench run` without --profile.

The counters do not fit one pass. With --replay application ncu runs lora-bench once a pass, so that
each pass finds memory and caches as a measurement does; --replay kernel repeats the launch itself over
caches flushed before each pass: quicker, but x and h are cold as well.

  scripts/profile-cases.py SCENARIO... [--case GLOB]... [--backends auto] [--out FILE.jsonl|FILE.csv]...
                           [--tool build/gpu-check/src/lora-bench] [--replay application|kernel]
"""
import argparse
import csv
import json
import re
import sys
from pathlib import Path

from nsight import ENVIRONMENT, ROOT, USAGE, Parser, kernels_of, leave, ncu, need, said

# Of several metrics the first that this GPU counts.
COLUMNS = {
    "time_us": ["gpu__time_duration.sum"],
    "dram_pct": ["dram__throughput.avg.pct_of_peak_sustained_elapsed"],
    "l2_pct": ["lts__throughput.avg.pct_of_peak_sustained_elapsed"],
    "tensor_pct": ["sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
                   "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_elapsed"],
    "sm_pct": ["sm__cycles_active.avg.pct_of_peak_sustained_elapsed"],
    "warps_pct": ["sm__warps_active.avg.pct_of_peak_sustained_active"],
    "dram_read_bytes": ["dram__bytes_read.sum"],
    "registers": ["launch__registers_per_thread"],
}
ISSUED = "selected"  # no stall, but of the time that a warp was there as well
WAITS = [ISSUED, "barrier", "branch_resolving", "dispatch_stall", "drain", "gmma", "imc_miss", "lg_throttle",
         "long_scoreboard", "math_pipe_throttle", "membar", "mio_throttle", "misc", "no_instruction", "not_selected",
         "short_scoreboard", "sleeping", "tex_throttle", "wait"]
WAIT_METRICS = {wait: f"smsp__average_warps_issue_stalled_{wait}_per_issue_active.ratio" for wait in WAITS}
CACHES = {"application": "none", "kernel": "all"}


def refused(done, metrics):
    """Those that ncu says it cannot find: it names them as a regular expression, whole or up to the first dot."""
    told = " ".join(line.replace("\\", "") for line in (done.stdout + done.stderr).splitlines()
                    if "Failed to find metric" in line)
    words = set(re.findall(r"\w+", told))
    return [metric for metric in metrics if metric.split(".")[0] in words]


def profiled(tool, asked, replay):
    """Of each row, by its name, its kernels, without metrics that this ncu or this GPU does not know."""
    metrics = [*(metric for choice in COLUMNS.values() for metric in choice), *WAIT_METRICS.values()]
    while True:
        said(f"ncu takes {len(metrics)} metrics")
        done = ncu(tool, asked, metrics, "--replay-mode", replay, "--cache-control", CACHES[replay])
        left_out = refused(done, metrics)
        if not left_out or left_out == metrics:
            break
        said(f"left out, as ncu does not know it here: {', '.join(left_out)}")
        metrics = [metric for metric in metrics if metric not in left_out]
    # What lora-bench says of each row that it launched; once for each pass.
    names = dict.fromkeys(re.findall(r"^\S+ (.+): launched once in the range$", done.stdout, re.MULTILINE))
    rows = kernels_of(done, names)
    if not rows:
        leave(ENVIRONMENT, f"{tool} says of no row that it launched it: {done.stdout[:500]}")
    uncounted = [metric for metric in metrics
                 if all(kernel.get(metric) is None for kernels in rows.values() for kernel in kernels)]
    if uncounted:
        said(f"without a value on this GPU: {', '.join(uncounted)}")
    return rows


def row_of(name, kernel):
    case, backend = name.rsplit(" ", 1)
    row = {"case": case, "backend": backend, "kernel": kernel["kernel"], "grid": kernel["grid"],
           "block": kernel["block"]}
    for column, choice in COLUMNS.items():
        row[column] = next((kernel[metric] for metric in choice if kernel.get(metric) is not None), None)
    waits = {wait: kernel.get(metric) for wait, metric in WAIT_METRICS.items()}
    total = sum(warps for warps in waits.values() if warps is not None)
    for wait, warps in waits.items():
        row[f"{wait}_pct"] = None if warps is None or not total else 100 * warps / total
    return row


def top_waits(row):
    shares = [(row[f"{wait}_pct"], wait) for wait in WAITS if wait != ISSUED and row[f"{wait}_pct"]]
    return ", ".join(f"{wait} {share:.0f} %" for share, wait in sorted(shares, reverse=True)[:3])


def short(kernel):
    """Of "void lora_bench::kernels::bgmv_shrink<...>(...)" bgmv_shrink."""
    return re.split(r"[<(]", kernel.removeprefix("void "))[0].split("::")[-1]


def table(rows):
    shown = {"us": ("time_us", ".2f"), "DRAM %": ("dram_pct", ".0f"), "L2 %": ("l2_pct", ".0f"),
             "tensor %": ("tensor_pct", ".0f"), "SMs %": ("sm_pct", ".0f"), "warps %": ("warps_pct", ".0f"),
             "registers": ("registers", ".0f")}
    print(f"| case | backend | kernel | {' | '.join(shown)} | warps wait for |")
    print(f"| --- | --- | --- |{' ---: |' * len(shown)} --- |")
    for row in rows:
        cells = ("-" if row[column] is None else format(row[column], form) for column, form in shown.values())
        print(f"| {row['case']} | {row['backend']} | {short(row['kernel'])} | {' | '.join(cells)} | {top_waits(row)} |")


def store(path, rows):
    with path.open("w", newline="", encoding="utf-8") as file:
        if path.suffix == ".csv":
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
        else:
            file.writelines(json.dumps(row) + "\n" for row in rows)


def main():
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", nargs="+", help="as in lora-bench run")
    parser.add_argument("--case", action="append", default=[], help="as in lora-bench run")
    parser.add_argument("--backends", default="auto")
    parser.add_argument("--out", action="append", default=[], type=Path, help="FILE.jsonl or FILE.csv; may be repeated")
    parser.add_argument("--tool", default=str(ROOT / "build/gpu-check/src/lora-bench"))
    parser.add_argument("--replay", choices=CACHES, default="application")
    options = parser.parse_args()
    for path in options.out:
        if path.suffix not in (".jsonl", ".csv"):
            leave(USAGE, f"--out {path}: .jsonl or .csv")
        if not path.parent.is_dir():
            leave(ENVIRONMENT, f"--out {path}: there is no folder {path.parent}")
    need(options.tool)
    asked = [*options.scenario, "--backends", options.backends,
             *(word for case in options.case for word in ("--case", case))]
    rows = [row_of(name, kernel) for name, kernels in profiled(options.tool, asked, options.replay).items()
            for kernel in kernels]
    table(rows)
    for path in options.out:
        store(path, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
