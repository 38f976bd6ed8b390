#!/usr/bin/env bash
# The GPU backends under compute-sanitizer: reads and writes out of bounds, races in shared memory,
# memory read before it was written, barriers that not all threads reach. Needs a GPU; a few minutes.
#   scripts/sanitize.sh [TOOL...]     default: memcheck racecheck initcheck synccheck
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v compute-sanitizer >/dev/null; then
  echo "sanitize.sh: compute-sanitizer is not on PATH; it comes with the CUDA toolkit" >&2
  exit 5
fi
build=${LORA_BENCH_BUILD:-build/gpu-check}
tool=$build/src/lora-bench
if [[ ! -x $tool ]]; then
  mkdir -p build
  cmake --preset release -B "$build" -DLORA_BENCH_CUDA=ON >"build/sanitize.log" 2>&1 &&
    cmake --build "$build" --target lora-bench >>"build/sanitize.log" 2>&1 ||
    { tail -n 60 build/sanitize.log >&2; exit 1; }
fi

tools=("$@")
((${#tools[@]})) || tools=(memcheck racecheck initcheck synccheck)
backends=${LORA_BENCH_BACKENDS:-naive,bgmv,grouped,grouped-ordered,chunked,panel,auto}
watch() {  # TOOL SCENARIO BACKENDS
  local from=$SECONDS status=0 told=build/$2-$1.txt
  # Host copies of poisoned outputs are the verifier's own doing, not the kernels'.
  compute-sanitizer --tool "$1" --error-exitcode 99 --print-limit 5 \
    "$tool" verify "scenarios/$2.yaml" --quick --quiet --buffers-apart --backends "$3" >"$told" 2>&1 || status=$?
  echo "$1 of $2: exit $status, $((SECONDS - from)) s" >>"$told"
  return "$status"
}
# All at once: each has work for one core, and little for the GPU.
pids=()
files=()
for name in "${tools[@]}"; do
  watch "$name" sanitize "$backends" &
  pids+=($!)
  watch "$name" sanitize-auto auto &
  pids+=($!)
  files+=("build/sanitize-$name.txt" "build/sanitize-auto-$name.txt")
done
worst=0
for i in "${!pids[@]}"; do
  status=0
  wait "${pids[i]}" || status=$?
  ((status <= worst)) || worst=$status
  grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "${files[i]}" | tail -n 1 | sed 's/^=* *//'
  grep -E '^[0-9]+ rows?:' "${files[i]}" || echo "no rows: it did not end"
  tail -n 1 "${files[i]}"
done
exit "$worst"
