#!/usr/bin/env bash
# Everything that has to be seen on a GPU, kept as a record: proof, self-test, ceilings, anchors, A/A
# noise. Builds unless LORA_BENCH_BINARY names a binary; writes to $OUT if that is set, else to
# docs/results/<date>-<gpu>.
#   scripts/gpu-check.sh
set -euo pipefail
cd "$(dirname "$0")/.."

if ! gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1); then
  echo "gpu-check.sh: nvidia-smi finds no GPU here" >&2
  exit 5
fi
tool=${LORA_BENCH_BINARY:-build/release/src/lora-bench}
if [[ -z ${LORA_BENCH_BINARY:-} ]]; then
  scripts/setup.sh
  mkdir -p build
  { cmake --preset release -DLORA_BENCH_CUDA=ON && cmake --build --preset release; } \
    >build/release.log 2>&1 || { tail -n 60 build/release.log >&2; exit 1; }
fi

slug=$(tr '[:upper:] ' '[:lower:]-' <<<"$gpu" | tr -cd 'a-z0-9-')
out=${OUT:-docs/results/$(date -u +%Y-%m-%d)-$slug}
mkdir -p "$out"

worst=0
# Keeps what a command prints beside its exit code and goes on, so that one failure hides no other.
record() {
  local name=$1 status=0
  shift
  echo "== lora-bench $*"
  "$tool" "$@" >"$out/$name.txt" 2>"$out/$name.log" || status=$?
  tail -n 5 "$out/$name.txt"
  echo "lora-bench $*: exit $status" >>"$out/commands.txt"
  ((status <= worst)) || worst=$status
}

: >"$out/commands.txt"
{
  "$tool" --version
  date -u +'%Y-%m-%dT%H:%M:%SZ'
  nvidia-smi --query-gpu=name,driver_version,compute_cap,memory.total,clocks.max.sm,power.limit \
    --format=csv
} >"$out/provenance.txt"

record device device --refresh
record verify verify
record self-test verify --self-test
record anchors run anchors --backends naive \
  --out "$out/anchors.jsonl" --out "$out/anchors.md"
# The same code twice: what differs between the two is noise.
record aa-first run anchors --backends naive --shuffle --out "$out/aa-first.jsonl"
record aa-second run anchors --backends naive --shuffle --out "$out/aa-second.jsonl"
record aa compare "$out/aa-first.jsonl" "$out/aa-second.jsonl"
cat "$out/commands.txt"
exit "$worst"
