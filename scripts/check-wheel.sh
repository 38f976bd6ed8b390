#!/usr/bin/env bash
# Makes a wheel of what a build folder holds, installs it into an environment of its own, and uses
# it there as somebody would who has nothing else: the command, a kernel in Python, the module.
#   scripts/check-wheel.sh [BUILD]     without it build/dev
# Exits with 77 where it cannot be tried: no Python with venv and NumPy, no scikit-build-core to be had.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "${1:-build/dev}")

cannot() {
  echo "not tried: $1" >&2
  exit 77
}

python=""
for one in python3 /usr/bin/python3; do
  if "$one" -c 'import ensurepip, numpy' 2>/dev/null; then
    python=$one
    break
  fi
done
[[ -n $python ]] || cannot "no python3 with venv and NumPy here (apt install python3-venv python3-numpy)"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Kept from one run to the next.
tools=build/wheel-tools
requirement=$(sed -n 's/^requires = \["\(.*\)"\]$/\1/p' pyproject.toml)
if ! "$tools/bin/python" -c 'import scikit_build_core' 2>/dev/null; then
  "$python" -m venv "$tools"
  "$tools/bin/pip" install -q "$requirement" || cannot "pip has no $requirement here"
fi

"$tools/bin/pip" wheel -q . --no-deps --no-build-isolation -w "$work/dist" \
  "--config-settings=build-dir=$work/build" \
  "--config-settings=cmake.define.LORA_BENCH_PROGRAM=$build/src/lora-bench"
wheel=$(echo "$work"/dist/*.whl)
version=$(sed -n 's/^project(lora-bench VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
[[ $(basename "$wheel") == lora_bench-"$version"-py3-none-linux_*.whl ]] ||
  { echo "a wheel of another name: $wheel" >&2; exit 1; }

"$python" -m venv --system-site-packages "$work/venv"  # NumPy is the system's
"$work/venv/bin/pip" install -q --no-index "$wheel"
unset LORA_BENCH_BINARY LORA_BENCH_SCENARIOS LORA_BENCH_PYTHON PYTHONPATH
export PATH="$work/venv/bin:$PATH" XDG_CACHE_HOME="$work/cache"
share=$work/venv/share
cp "$share/lora-bench/scenarios/smoke.yaml" "$share/lora-bench/scenarios/only-here.yaml"
cd "$work"
lora-bench --version | grep -q "^lora-bench $version " || { echo "another version" >&2; exit 1; }
lora-bench verify only-here --quiet \
  --backends "cpu,$share/doc/lora-bench/examples/python/numpy_linear.py"
python3 - "$work/venv" <<'CHECK'
import importlib.metadata
import pathlib
import sys

import lora_bench

environment = pathlib.Path(sys.argv[1])
assert environment in pathlib.Path(lora_bench.__file__).parents, lora_bench.__file__
assert lora_bench.program() == str(environment / "bin" / "lora-bench"), lora_bench.program()
kernel = environment / "share" / "doc" / "lora-bench" / "examples" / "python" / "numpy_linear.py"
rows = lora_bench.run("only-here", backends=["cpu", kernel], no_time=True, must_pass=True)
assert len(rows) == 12, len(rows)
assert rows.context["tool_version"] == importlib.metadata.version("lora-bench")
CHECK
"$work/venv/bin/pip" uninstall -q -y lora-bench
[[ ! -e $work/venv/bin/lora-bench ]] || { echo "uninstalling leaves the program" >&2; exit 1; }
