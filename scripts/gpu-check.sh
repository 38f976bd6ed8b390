#!/usr/bin/env bash
# Everything that has to be seen on a GPU, kept as a record: GPU tests, ceilings, proof, self-test,
# anchors, A/A noise. About five minutes, most of it the build. Writes to docs/results/<date>-<gpu>.
#   scripts/gpu-check.sh
set -euo pipefail
cd "$(dirname "$0")/.."

if ! gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1); then
  echo "gpu-check.sh: nvidia-smi finds no GPU here" >&2
  exit 5
fi
build=build/gpu-check
tool=$build/src/lora-bench
mkdir -p build
make() {
  cmake --preset release -B "$build" -DLORA_BENCH_CUDA=ON -DBUILD_TESTING=ON &&
    cmake --build "$build" --target lora-bench gpu_tests
}
# A machine without a network may have all it needs from elsewhere: packages only when it has not.
if ! make >"$build.log" 2>&1; then
  scripts/setup.sh --for test
  make >"$build.log" 2>&1 || { tail -n 60 "$build.log" >&2; exit 1; }
fi

slug=$(tr '[:upper:] ' '[:lower:]-' <<<"$gpu" | tr -cd 'a-z0-9-')
out=docs/results/$(date -u +%Y-%m-%d)-$slug
mkdir -p "$out"

worst=0
# Keeps what a command prints and its exit code, and goes on: one failure hides no other.
record() {
  local name=$1 status=0
  shift
  echo "== $*"
  "$@" >"$out/$name.txt" 2>"$out/$name.log" || status=$?
  tail -n 5 "$out/$name.txt"
  [[ -s $out/$name.log ]] || rm "$out/$name.log"
  echo "$*: exit $status" >>"$out/commands.txt"
  ((status <= worst)) || worst=$status
}

: >"$out/commands.txt"
{
  "$tool" --version
  date -u +'%Y-%m-%dT%H:%M:%SZ'
  nvidia-smi --query-gpu=name,driver_version,compute_cap,memory.total,clocks.max.sm,power.limit \
    --format=csv
} >"$out/provenance.txt"

record gpu-tests "$build/tests/gpu_tests"
record device "$tool" device --refresh
record verify "$tool" verify
record self-test "$tool" verify --self-test --quiet
record anchors "$tool" run anchors --backends naive --out "$out/anchors.jsonl" --out "$out/anchors.md"
# The same code a second time: what differs is noise.
record aa-run "$tool" run anchors --backends naive --shuffle --out "$out/aa.jsonl"
record aa "$tool" compare "$out/anchors.jsonl" "$out/aa.jsonl"
cat "$out/commands.txt"
exit "$worst"
