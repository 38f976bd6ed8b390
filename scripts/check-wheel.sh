#!/usr/bin/env bash
# Installs a wheel into an environment of its own, and uses it there as somebody would who has
# nothing else: the command, a kernel in Python, the module.
#   scripts/check-wheel.sh FILE.whl | PROGRAM     PROGRAM: a lora-bench, of which a wheel is made first
# Exits with 77 where it cannot be tried: no Python with venv and NumPy, no scikit-build-core to be had.
set -euo pipefail
if (($# != 1)) || [[ ! -f $1 ]]; then
  echo "usage: check-wheel.sh FILE.whl | PROGRAM" >&2
  exit 1
fi
given=$(realpath -e "$1")
cd "$(dirname "$0")/.."

python=""
for one in python3 /usr/bin/python3; do
  if "$one" -c 'import ensurepip, numpy' 2>/dev/null; then
    python=$one
    break
  fi
done
if [[ -z $python ]]; then
  echo "not tried: no python3 with venv and NumPy here (apt install python3-venv python3-numpy)" >&2
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
case $given in
  *.whl) wheel=$given ;;
  *) wheel=$(scripts/make-wheel.sh "$given" "$work" | tail -n 1) ;;
esac
version=$(sed -n 's/^project(lora-bench VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
if [[ $(basename "$wheel") != lora_bench-"$version"-py3-none-*linux_*.whl ]]; then
  echo "a wheel of another name: $wheel" >&2
  exit 1
fi

"$python" -m venv --system-site-packages "$work/venv"  # NumPy is the system's
"$work/venv/bin/pip" install -q --no-index "$wheel"
unset LORA_BENCH_BINARY LORA_BENCH_SCENARIOS LORA_BENCH_PYTHON PYTHONPATH VIRTUAL_ENV CONDA_PREFIX
export XDG_CACHE_HOME="$work/cache"
share=$work/venv/share
cp "$share/lora-bench/scenarios/smoke.yaml" "$share/lora-bench/scenarios/only-here.yaml"
cd "$work"
if [[ $(venv/bin/lora-bench --version | head -n 1) != "lora-bench $version "* ]]; then
  echo "a program of another version" >&2
  exit 1
fi
venv/bin/lora-bench verify only-here --quiet \
  --backends "cpu,$share/doc/lora-bench/examples/python/numpy_linear.py"
venv/bin/python3 - "$work/venv" <<'CHECK'
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
venv/bin/pip uninstall -q -y lora-bench
if [[ -e venv/bin/lora-bench ]]; then
  echo "uninstalling leaves the program" >&2
  exit 1
fi
