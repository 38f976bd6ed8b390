#!/usr/bin/env python3
"""Our times against another clock: ncu's duration of the same kernels.

Each case is one kernel (shrink or expand alone), timed by lora-bench with cold operands, and profiled
by ncu where --profile launches it once more, over operands that no cache holds any more: ncu leaves
caches and clocks as they are. Within 3 % above 10 us, within 0.5 us below.

  scripts/check-clock.py [--tool build/gpu-check/src/lora-bench] [--backends grouped,chunked,...]
"""
import argparse
import csv
import io
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCENARIO = ROOT / "scenarios" / "clock.yaml"
METRICS = "gpu__time_duration.sum,lts__t_sector_hit_rate.pct,dram__bytes_read.sum"
UNITS_US = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3}
UNITS_B = {"byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}


def our_rows(tool, backends):
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rows.jsonl"
        subprocess.run([tool, "run", SCENARIO, "--backends", backends, "--out", out, "--quiet"],
                       stdout=subprocess.DEVNULL, check=False)
        lines = [json.loads(line) for line in out.read_text().splitlines()]
    return [row for row in lines if row["kind"] == "row" and row["status"] == "PASSED"]


def profiled(tool, row):
    """Duration in us, L2 hit rate in %, bytes read from memory of the row's kernels."""
    command = ["ncu", "--nvtx", "--nvtx-include", "lora-bench/", "--cache-control", "none",
               "--clock-control", "none", "--csv",
               "--metrics", METRICS, tool, "run", str(SCENARIO), "--case", row["case"],
               "--backends", row["backend"], "--profile"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    # A second pass would find in the cache what the first has read.
    if any(int(passes) > 1 for passes in re.findall(r"(\d+) passes", text)):
        raise SystemExit(f"check-clock.py: ncu needs several passes for {METRICS}; ask for less")
    table = text[text.index('"ID"'):]
    duration, hits, read, kernels = 0.0, 0.0, 0.0, set()
    for line in csv.DictReader(io.StringIO(table)):
        value = float(line["Metric Value"].replace(",", ""))
        unit = line["Metric Unit"]
        if line["Metric Name"].startswith("gpu__time"):
            duration += value * UNITS_US[unit]
            kernels.add(line["ID"])
        elif line["Metric Name"].startswith("lts__"):
            hits = max(hits, value)
        else:
            read += value * UNITS_B[unit]
    return duration, hits, read, len(kernels)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", default=str(ROOT / "build/gpu-check/src/lora-bench"))
    parser.add_argument("--backends", default="naive,grouped,chunked")
    options = parser.parse_args()
    worst = 0
    print("| case | backend | kernels | ours us | ncu us | difference | L2 hits % | "
          "read from memory / bytes | |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |")
    for row in our_rows(options.tool, options.backends):
        theirs, hits, read, kernels = profiled(options.tool, row)
        ours = row["time_us"]
        allowed = 0.03 * theirs if theirs > 10 else 0.5
        agrees = abs(ours - theirs) <= allowed
        worst = worst if agrees else 3
        print(f"| {row['case']} | {row['backend']} | {kernels} | {ours:.2f} | {theirs:.2f} | "
              f"{100 * (ours / theirs - 1):+.1f} % | {hits:.0f} | {read / row['bytes']:.2f} | "
              f"{'agrees' if agrees else 'DIFFERS'} |")
    return worst


if __name__ == "__main__":
    sys.exit(main())
