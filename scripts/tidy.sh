#!/usr/bin/env bash
# clang-tidy over src/ and reference/ by the dev build's compile commands. A file that was clean is
# looked at again only when it, a header or .clang-tidy changed.
#   scripts/tidy.sh [FILE.cpp ...]
set -euo pipefail
cd "$(dirname "$0")/.."

tool=$(command -v clang-tidy-14 || command -v clang-tidy || true)
if [[ -z $tool ]]; then
  echo "tidy.sh: needs clang-tidy (apt-get install clang-tidy-14)" >&2
  exit 1
fi
if [[ ! -f build/dev/compile_commands.json ]]; then
  cmake --preset dev >/dev/null
fi

stamps=build/tidy
mkdir -p "$stamps"
newest_header=$(find src reference kernels .clang-tidy \( -name '*.h' -o -name .clang-tidy \) \
  -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d' ' -f2-)

files=("$@")
if ((${#files[@]} == 0)); then
  mapfile -t files < <(find src reference -name '*.cpp' | sort)
fi
due=()
for file in "${files[@]}"; do
  stamp=$stamps/${file//\//_}
  if [[ ! -f $stamp || $file -nt $stamp || $newest_header -nt $stamp ]]; then
    due+=("$file")
  fi
done
((${#due[@]})) || exit 0

look() {
  local file=$1
  local output
  if output=$("$TOOL" -p build/dev --quiet "$file" 2>/dev/null); then
    touch "$STAMPS/${file//\//_}"
  else
    printf '%s\n' "$output"
    return 1
  fi
}
export -f look
export TOOL=$tool STAMPS=$stamps
# shellcheck disable=SC2016  # expanded by the inner bash
printf '%s\0' "${due[@]}" | xargs -0 -n 1 -P "$(nproc)" bash -c 'look "$0"'
