#!/usr/bin/env python3
"""Is the floor a floor, and is it near? Asked of rows that `lora-bench run --touch` wrote on a GPU.

  scripts/draw-wide.py --seed 2 --points 1000 --most-bytes 2.5e8 > floor.yaml
  lora-bench run floor.yaml --backends auto --touch --out rows.jsonl
  scripts/check-floor.py rows.jsonl

No time may be below the floor by more than its noise. The kernel that only touches the operands (touch_us) may not be
below it by more than 3 %, since no right kernel does less, and must stand within 1.25 times the floor in geometric mean
where weights are most of the bytes, within 1.6 elsewhere. Exit code 0 when all of that holds, 3 when not, 4 when too few
rows tell, 1 for a wrong command.
"""
import argparse
import json
import math
import sys

LEAST_ROWS = 30  # of a kind, to speak of a geometric mean
TOUCH_NOISE = 0.03  # touch_us has no noise of its own in a row
BARS = {"weights are most of the bytes": 1.25, "activations are": 1.6}


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(1, f"{self.format_usage()}check-floor.py: {message}\n")


def rows_of(files):
    for file in files:
        with open(file, encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                if row.get("kind") == "row":
                    yield row


def kind_of(row):
    return next(iter(BARS)) if row["weight_bytes"] > row["bytes"] / 2 else list(BARS)[1]


def geometric_mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def below_floor(row):
    return row["status"] == "INVALID" or row["time_us"] + (row["noise_us"] or 0) < row["floor_us"]


def main():
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="+", help="results, .jsonl")
    options = parser.parse_args()
    try:
        rows = [row for row in rows_of(options.file) if row.get("time_us") and row.get("floor_us")]
    except (OSError, ValueError) as error:
        parser.error(str(error))
    below = [row for row in rows if below_floor(row)]
    nearest = sorted(rows, key=lambda row: row["time_us"] / row["floor_us"])[:5]
    print(f"{len(rows)} timed rows, {len(below)} below the floor by more than their noise")
    for row in below or nearest:
        print(f"  {row['case']} {row['backend']}: {row['time_us']:.3g} us, floor {row['floor_us']:.3g} us ({row['bound_by']})"
              f", x floor {row['time_us'] / row['floor_us']:.3f}, x stream {row['time_us'] / row['stream_us']:.3f}")
    sooner = [row for row in rows if row.get("touch_us") and row["bound_by"] != "flops"
              and row["touch_us"] < (1 - TOUCH_NOISE) * row["floor_us"]]
    print(f"{len(sooner)} rows whose operands are touched in less than {1 - TOUCH_NOISE:.2f} times the floor")
    for row in sorted(sooner, key=lambda row: row["touch_us"] / row["floor_us"]):
        print(f"  {row['case']}: {row['touch_us']:.3g} us, floor {row['floor_us']:.3g} us ({row['bound_by']})"
              f", {row['bytes']} bytes")
    touched = {}
    for row in rows:
        # Where flops bound the case a kernel that computes nothing tells nothing.
        if row.get("touch_us") and row["bound_by"] != "flops":
            touched.setdefault(kind_of(row), {})[row["case"]] = row["touch_us"] / row["floor_us"]
    missed, few = bool(below or sooner), not rows
    for kind, bar in BARS.items():
        ratios = sorted(touched.get(kind, {}).values())
        if len(ratios) < LEAST_ROWS:
            few = True
            print(f"touch where {kind}: {len(ratios)} cases, too few")
            continue
        mean = geometric_mean(ratios)
        missed = missed or mean > bar
        print(f"touch where {kind}: {len(ratios)} cases, {mean:.3f} times the floor in geometric mean (bar {bar}), "
              f"{ratios[0]:.3f} to {ratios[-1]:.3f}")
    return 3 if missed else 4 if few else 0


if __name__ == "__main__":
    sys.exit(main())
