"""NVIDIA's profiler on the launches that `lora-bench run --profile` makes: what the scripts that ask it share."""
import argparse
import csv
import io
import math
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = Path(sys.argv[0]).name
USAGE, INCONCLUSIVE, ENVIRONMENT = 1, 4, 5
UNITS = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3,
         "byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9,
         "Mhz": 1e-3, "Ghz": 1.0, "hz": 1e-9, "%": 1.0}


def leave(code, text):
    print(f"{PROGRAM}: {text}", file=sys.stderr)
    sys.exit(code)


def said(text):
    """What a run of minutes is doing."""
    print(f"{PROGRAM}: {text}", file=sys.stderr, flush=True)


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(USAGE, f"{self.format_usage()}{PROGRAM}: {message}\n")


def need(tool):
    if shutil.which(tool) is None:
        leave(USAGE, f"cannot run {tool}; name the built lora-bench with --tool")
    if shutil.which("ncu") is None:
        leave(ENVIRONMENT, "no ncu in the PATH; Nsight Compute has it, beside the CUDA toolkit")


def ncu(tool, asked, metrics, *options):
    """What ncu prints of `tool run ASKED --profile`. Clocks stay as a measurement finds them."""
    command = ["ncu", "--nvtx", "--nvtx-include", "lora-bench/", "--print-nvtx-rename", "kernel",
               "--clock-control", "none", *options, "--csv", "--metrics", ",".join(metrics),
               tool, "run", *map(str, asked), "--profile"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "ERR_NVGPUCTRPERM" in done.stdout + done.stderr:
        leave(ENVIRONMENT, "ncu may not read the counters of this GPU (ERR_NVGPUCTRPERM): be root, load the driver "
                           "with NVreg_RestrictProfilingToAdminUsers=0, or give a container CAP_SYS_ADMIN")
    return done


def give_up(done):
    leave(ENVIRONMENT, f"{' '.join(done.args)}: {done.stdout[-500:]}{done.stderr[-500:]}")


def row_of_kernel(kernel, names):
    """The name before the kernel's own in "CASE BACKEND/void kernel<...>(...)", None where none of them is.
    Cases and signatures may hold slashes themselves, so the names are looked for, the longest first."""
    return next((name for name in sorted(names, key=len, reverse=True) if f"{kernel}/".startswith(f"{name}/")), None)


def value_of(line):
    """In us, bytes, GHz or %; None of a metric that this GPU does not count. A ratio and what stands of
    the launch itself are numbers whatever their unit is called."""
    metric, unit, text = line["Metric Name"], line["Metric Unit"], line["Metric Value"]
    if "n/a" in text:
        return None
    plain = metric.endswith(".ratio") or metric.startswith("launch__")
    try:
        value = float(text.replace(",", "")) * (1.0 if plain else UNITS[unit])
    except (KeyError, ValueError):
        leave(ENVIRONMENT, f"ncu gives {metric} as '{text}' in '{unit}', which this script cannot read")
    return value if math.isfinite(value) else None


def kernels_of(done, names):
    """Of each row, by its name: a list with the metrics of each kernel, and what it is."""
    if done.returncode != 0 or '"ID"' not in done.stdout:
        give_up(done)
    rows, strange = {}, []
    for line in csv.DictReader(io.StringIO(done.stdout[done.stdout.index('"ID"'):])):
        if not (line.get("Metric Name") or "").strip():
            continue
        within = line["Kernel Name"].removeprefix("lora-bench/")  # the range around all of them
        name = row_of_kernel(within, names)
        if name is None:
            strange.append(line["Kernel Name"])
            continue
        kernel = rows.setdefault(name, {}).setdefault(
            line["ID"], {"kernel": within[len(name) + 1:], "grid": line["Grid Size"], "block": line["Block Size"]})
        kernel[line["Metric Name"]] = value_of(line)
    for name in names:
        if name not in rows:
            others = ", ".join(map(repr, list(dict.fromkeys(strange))[:3])) or "those of other rows"
            leave(ENVIRONMENT, f"ncu shows no kernel of '{name}', only {others}; rows are told apart by "
                               "--print-nvtx-rename kernel, which this ncu may write in another form")
    return {name: list(kernels.values()) for name, kernels in rows.items()}
