#!/usr/bin/env bash
# Packs a lora-bench that was built before as a wheel; compiles nothing. The last line is its path.
#   scripts/make-wheel.sh PROGRAM FOLDER [PLATFORM]     PLATFORM: of its name; without it linux_x86_64
# Exits with 77 where there is no scikit-build-core to be had.
set -euo pipefail
if (($# < 2 || $# > 3)); then
  echo "usage: make-wheel.sh PROGRAM FOLDER [PLATFORM]" >&2
  exit 1
fi
program=$(realpath -e "$1")
mkdir -p "$2"
folder=$(realpath "$2")
platform=${3:-linux_$(uname -m)}
cd "$(dirname "$0")/.."

# Kept from one run to the next.
tools=build/wheel-tools
requirement=$(sed -n 's/^requires = \["\(.*\)"\]$/\1/p' pyproject.toml)
if ! "$tools/bin/python" -c 'import scikit_build_core' 2>/dev/null; then
  python3 -m venv "$tools"
  if ! "$tools/bin/pip" install -q "$requirement" >&2; then
    echo "not tried: pip has no $requirement here" >&2
    exit 77
  fi
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$tools/bin/pip" wheel -q . --no-deps --no-build-isolation -w "$work/dist" \
  "--config-settings=build-dir=$work/build" \
  "--config-settings=cmake.define.LORA_BENCH_PROGRAM=$program" \
  "--config-settings=wheel.tags=py3-none-$platform" >&2
wheel=$(echo "$work"/dist/*.whl)
mv "$wheel" "$folder"
echo "$folder/$(basename "$wheel")"
