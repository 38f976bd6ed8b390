#!/usr/bin/env bash
# Lays out all sources by .clang-format; with --check only says what differs.
set -euo pipefail
cd "$(dirname "$0")/.."

tool=$(command -v clang-format-14 || command -v clang-format || true)
if [[ -z $tool ]] || ! "$tool" --version | grep -q 'version 14\.'; then
  echo "format.sh: needs clang-format 14 (apt-get install clang-format-14)" >&2
  exit 1
fi
case ${1:-} in
  "") mode=(-i) ;;
  --check) mode=(--dry-run --Werror) ;;
  *) echo "usage: format.sh [--check]" >&2; exit 1 ;;
esac

# Only what C++ it is: clang-format happily breaks CMake files and shell scripts.
find src kernels reference tests -type f \
  \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print0 |
  xargs -0 -r -n 40 -P "$(nproc)" "$tool" "${mode[@]}"
