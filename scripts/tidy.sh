#!/usr/bin/env bash
# clang-tidy over src/ and reference/. A room is read as one translation unit (the `lint` preset),
# which takes a fifth of the time of its files one by one; so a name may stand only once in the
# unnamed namespaces of a room. What was clean is read again only when it, a header or .clang-tidy
# changed.
#   scripts/tidy.sh
set -euo pipefail
cd -P "$(dirname "$0")/.."

tool=$(command -v clang-tidy-14 || command -v clang-tidy || true)
if [[ -z $tool ]]; then
  echo "tidy.sh: needs clang-tidy (apt-get install clang-tidy-14)" >&2
  exit 1
fi
log=build/lint.log
mkdir -p build
if ! { cmake --preset lint && cmake --build build/lint --target lora_bench_commit; } >"$log" 2>&1
then
  tail -n 20 "$log" >&2
  exit 1
fi

newest() { find "$@" -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d' ' -f2-; }
header=$(newest src reference kernels .clang-tidy CMakePresets.json -type f \
  \( -name '*.h' -o -name '*.inc' -o -name .clang-tidy -o -name '*.json' \))

# The largest first, so that no processor waits for it at the end.
mapfile -t units < <(sed -n 's/^  "file": "\(.*\/\(src\|reference\)\/.*\)",\{0,1\}$/\1/p' \
  build/lint/compile_commands.json | grep '\.\(cpp\|cxx\)$' | sort -u |
  while read -r unit; do echo "$(wc -l <"$unit") $unit"; done | sort -rn | cut -d' ' -f2-)
due=()
for unit in "${units[@]}"; do
  room=${unit#"$PWD"/build/lint/}
  source=$(newest "${room%%/CMakeFiles/*}" -name '*.cpp')
  stamp=build/lint/tidy/$(tr '/' '_' <<<"${unit#"$PWD"/}")
  if [[ ! -f $stamp || $source -nt $stamp || $header -nt $stamp ]]; then
    due+=("$unit" "$stamp")
  fi
done
((${#due[@]})) || exit 0
mkdir -p build/lint/tidy

look() {
  local output
  # The compile commands are the compiler's, which has warnings that clang does not know.
  if output=$("$TOOL" -p build/lint --quiet --extra-arg=-Wno-unknown-warning-option "$1" 2>/dev/null)
  then
    touch "$2"
  else
    printf '%s\n' "$output"
    return 1
  fi
}
export -f look
export TOOL=$tool
# shellcheck disable=SC2016  # expanded by the inner bash
printf '%s\0' "${due[@]}" | xargs -0 -n 2 -P "$(nproc)" bash -c 'look "$0" "$1"'
