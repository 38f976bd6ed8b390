#!/usr/bin/env bash
# Everything that has to be seen on a GPU, kept as a record: GPU tests, ceilings, proof, self-test, the
# anchors with every backend, A/A noise, random cases, NVIDIA's sanitizers and NVIDIA's clock. About
# fifteen minutes. Writes to docs/results/<date>-<gpu>; parts run later on the same day join the record.
#   scripts/gpu-check.sh [PART...]
#     parts, in this order: tests device verify self-test anchors eight-bits metadata quantise handed floor aa modes fuzz sanitize clock python peers
#     peers-wide tax profile counters; default: all but python, peers, peers-wide and tax, which need PyTorch, profile, which needs ncu, and counters,
#     which needs leave to read the GPU's counters (docs/measuring.md)
#   LORA_BENCH_BUILD=DIR    a build with tests to use, instead of making one
#   LORA_BENCH_FUZZ=20000   how many random cases, LORA_BENCH_FUZZ_SECONDS=600 after which none begins,
#     LORA_BENCH_FUZZ_PROCESSES=10 in how many processes, each with a seed of its own
#   LORA_BENCH_TAX="*8b"    which cases of tax
#   LORA_BENCH_PROFILE="decode1-*"   which cases of anchors and auto-wide ncu explains
#   LORA_BENCH_PEERS="peer:vllm,peer:sglang-csgmv,..."   which peers; LORA_BENCH_PEER_MODULES and LORA_BENCH_PYTHON as
#     docs/peers.md says
#   LORA_BENCH_TUNED=DIR    files of launch parameters: peers that load them are run once more with them
#   LORA_BENCH_POINTS=160   how many points of peers-wide
#   LORA_BENCH_FLOOR_POINTS=1000   how many drawn steps of floor
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  sed -n '2,/^set /{/^#/s/^# \?//p}' "$0"
  exit 0
fi
known="tests device verify self-test anchors eight-bits metadata quantise handed floor aa modes fuzz sanitize clock python peers peers-wide tax profile counters"
parts=("$@")
((${#parts[@]})) || parts=(tests device verify self-test anchors eight-bits metadata quantise handed floor aa modes fuzz sanitize clock)
for part in "${parts[@]}"; do  # before anything is built or run
  if [[ " $known " != *" $part "* ]]; then
    echo "gpu-check.sh: no part '$part'" >&2
    echo "usage: gpu-check.sh [PART...], of: $known; --help says more" >&2
    exit 1
  fi
done
if ! gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1); then
  echo "gpu-check.sh: nvidia-smi finds no GPU here" >&2
  exit 5
fi
build=${LORA_BENCH_BUILD:-build/gpu-check}
tool=$build/src/lora-bench
make() {
  cmake --preset release -B "$build" -DLORA_BENCH_CUDA=ON -DBUILD_TESTING=ON &&
    cmake --build "$build" --target lora-bench gpu_tests
}
# A machine without a network may have all it needs from elsewhere: packages only when it has not.
if [[ -z ${LORA_BENCH_BUILD:-} ]]; then
  mkdir -p build
  if ! make >"$build.log" 2>&1; then
    scripts/setup.sh --for test
    make >"$build.log" 2>&1 || { tail -n 60 "$build.log" >&2; exit 1; }
  fi
fi

slug=$(tr '[:upper:] ' '[:lower:]-' <<<"$gpu" | tr -cd 'a-z0-9-')
out=docs/results/$(date -u +%Y-%m-%d)-$slug
mkdir -p "$out"

worst=0
# Keeps what a command prints and its exit code, and goes on: one failure hides no other.
record() {
  local name=$1 status=0 from=$SECONDS
  shift
  echo "== $*"
  "$@" >"$out/$name.txt" 2>"$out/$name.log" || status=$?
  tail -n 5 "$out/$name.txt"
  [[ -s $out/$name.log ]] || rm "$out/$name.log"
  touch "$out/commands.txt"
  sed -i "/^$name: /d" "$out/commands.txt"
  echo "$name: $*: exit $status, $((SECONDS - from)) s" >>"$out/commands.txt"
  ((status <= worst)) || worst=$status
}

all_peers=peer:vllm,peer:sglang-csgmv,peer:sglang-triton,peer:sglang-triton-v2,peer:sglang-uno-cublas
all_peers+=,peer:torch-loop,peer:torch-bmm,peer:torch-grouped
tuned_peers=vllm-tuned=peer:vllm,csgmv-tuned=peer:sglang-csgmv,triton-v2-tuned=peer:sglang-triton-v2

# Adapters in eight bits: proved, and the anchors beside the same ones in 16 bits.
eight_bits() {
  record eight-bits-verify "$tool" verify verify/eight-bits verify/eight-bits-layers --backends naive,auto --quiet
  record anchors-bf16 "$tool" run anchors --backends auto --out "$out/anchors-bf16.jsonl" --quiet
  record anchors-e4m3 "$tool" run anchors --set weights.dtype=e4m3 --set weights.scale=channel --backends auto \
    --out "$out/anchors-e4m3.jsonl" --quiet
}

# A kernel of Triton: proved, timed, and what the way through the program adds to its time.
python() {
  local example=examples/python/triton_linear.py
  record python-verify "$tool" verify smoke --backends "$example" --quiet
  record python-anchors "$tool" run anchors --backends "auto,$example" --out "$out/python-anchors.jsonl" --quiet
  LORA_BENCH_BINARY=$tool record python-door scripts/door_cost.py
}

# Other people's kernels on the anchors as shipped, with tuned files too where there are any, and whether Python costs time.
peers() {
  local with_files=() tuned=${LORA_BENCH_TUNED:-}
  record peers "$tool" run anchors --backends "auto,${LORA_BENCH_PEERS:-$all_peers}" --out "$out/peers.jsonl" --quiet
  if [[ -n $tuned ]]; then
    record peers-tuned env VLLM_TUNED_CONFIG_FOLDER="$tuned" SGLANG_LORA_CONFIG_DIR="$tuned" \
      SGLANG_LORA_DENSE_CONFIG_DIR="$tuned" "$tool" run anchors --backends "$tuned_peers" \
      --out "$out/peers-tuned.jsonl" --quiet
    with_files=("$out/peers-tuned.jsonl")
  fi
  record peers-table "$tool" report "$out/peers.jsonl" "${with_files[@]}" --out "$out/peers.md"
  record gemm "$tool" run gemm --backends cublas,peer:torch-loop --out "$out/gemm.jsonl" --quiet
}

# Other people's kernels on points of auto-wide. Those were drawn one by one: the first are as fair a sample as all. Run
# again, it goes on.
peers_wide() {
  local number wanted=()
  for number in $(seq -f %03g "${LORA_BENCH_POINTS:-160}"); do wanted+=(--case "$number-*"); done
  record wide "$tool" run auto-wide "${wanted[@]}" --backends "auto,${LORA_BENCH_PEERS:-peer:vllm,peer:sglang-triton-v2}" \
    --resume "$out/wide.jsonl" --quiet
  record wide-table "$tool" report "$out/wide.jsonl" --out "$out/wide-peers.md"
}

# What adapters add to whole layers.
tax() {
  record tax "$tool" run tax --filter tp=1 --filter "case=${LORA_BENCH_TAX:-*8b}" --backends "auto,${LORA_BENCH_PEERS:-peer:vllm}" \
    --out "$out/tax.jsonl" --quiet
}

# Where auto is furthest from what it is held to: what ncu counts there.
profile() {
  local globs glob wanted=()
  globs="decode256-down-identical-r64 prefill4096-qkv-4-r64 decode128-down-uniform8-r32 decode64-o-zipf1.5-r64"
  read -ra globs <<<"${LORA_BENCH_PROFILE:-$globs decode1-gateup-r16 026-* 055-* 073-* 100-* 157-*}"
  for glob in "${globs[@]}"; do wanted+=(--case "$glob"); done
  record profile scripts/profile-cases.py anchors auto-wide "${wanted[@]}" --tool "$tool" --out "$out/profile.jsonl"
}

# Is any time below the floor, and how near does a kernel come that only touches the operands? Every backend on 20 of a
# thousand steps, the quickest on all.
floor() {
  local file=build/floor.yaml quick=(--set measure.warmup_ms=10 --set measure.min_time_ms=5 --set measure.max_time_ms=40
    --set verify.max_rows=16 --max-cases 100000 --quiet)
  scripts/draw-wide.py --seed 2 --points "${LORA_BENCH_FLOOR_POINTS:-1000}" --most-bytes 2.5e8 >"$file"
  record floor "$tool" run "$file" --backends auto --touch "${quick[@]}" --out "$out/floor.jsonl"
  record floor-others "$tool" run "$file" --case '?00-*' --case '?50-*' \
    --backends naive,bgmv,grouped,chunked,panel,cublas "${quick[@]}" --out "$out/floor-others.jsonl"
  record floor-check scripts/check-floor.py "$out/floor.jsonl" "$out/floor-others.jsonl"
}

# Random cases on every backend. Most of the time goes to oracle and comparison on the host, so several processes share
# the GPU: nothing is timed. Prints what each of them said; the exit code is the worst of theirs.
fuzz_in_processes() {
  local processes=${LORA_BENCH_FUZZ_PROCESSES:-10} seed pids=() status=0 one
  local each=$(((${LORA_BENCH_FUZZ:-20000} + processes - 1) / processes))
  mkdir -p build/fuzz
  for seed in $(seq "$processes"); do
    "$tool" fuzz --seed "$seed" --cases "$each" --time-limit "${LORA_BENCH_FUZZ_SECONDS:-600}" --quick --quiet \
      --backends "$backends,cublas" --out "$out/fuzz" >"build/fuzz/$seed.txt" &
    pids+=($!)
  done
  for seed in $(seq "$processes"); do
    one=0
    wait "${pids[seed - 1]}" || one=$?
    ((one <= status)) || status=$one
    cat "build/fuzz/$seed.txt"
  done
  return "$status"
}

# What a launch must read from memory is counted there: all its weights, less 1 % for what the counters miss.
counted_right() {
  python3 - "$1" <<'END'
import json
import sys

rows = [row for row in map(json.loads, open(sys.argv[1], encoding="utf-8")) if row["kind"] == "row" and row["status"] == "PASSED"]
counted = [row for row in rows if row["dram_read_bytes"] is not None]
less = [row for row in counted if row["dram_read_bytes"] < 0.99 * row["weight_bytes"]]
for row in counted:
    share = f"{row['dram_read_bytes'] / row['weight_bytes']:.3f}" if row["weight_bytes"] else "-"
    print(f"{row['case']} {row['backend']}: {row['dram_read_bytes']} B read, {share} of the weights"
          + (": LESS THAN MUST COME FROM MEMORY" if row in less else ""))
print(f"{len(rows)} PASSED rows, {len(counted)} counted, {len(less)} that read less than their weights")
sys.exit(2 if less else 0 if counted and len(counted) == len(rows) else 4)
END
}

# What the GPU counts of one launch of each anchor; then whether counting left the times as they are.
counters() {
  record counters "$tool" run anchors --backends "$backends,cublas" --counters --out "$out/counters.jsonl" --quiet
  record counters-read counted_right "$out/counters.jsonl"
  [[ ! -e $out/anchors.jsonl ]] || record counters-times "$tool" compare "$out/anchors.jsonl" "$out/counters.jsonl"
}

backends=naive,bgmv,grouped,grouped-ordered,chunked,panel,auto
run_part() {
  case $1 in
    tests) record gpu-tests "$build/tests/gpu_tests" ;;
    device) record device "$tool" device --refresh ;;
    verify) record verify "$tool" verify ;;
    self-test) record self-test "$tool" verify --self-test --quiet ;;
    anchors)
      record anchors "$tool" run anchors --backends "$backends,cublas" --out "$out/anchors.jsonl" \
        --out "$out/anchors.md" --quiet
      ;;
    floor) floor ;;
    aa)  # the same code twice: what differs is noise
      for which in base new; do
        record "aa-$which" "$tool" run anchors --backends bgmv --repeat 7 --out "$out/aa-$which.jsonl" --quiet
      done
      record aa "$tool" compare "$out/aa-base.jsonl" "$out/aa-new.jsonl"
      ;;
    metadata) record metadata "$tool" run metadata --backends auto --out "$out/metadata.jsonl" ;;
    quantise) record quantise "$tool" run quantise --backends auto --out "$out/quantise.jsonl" ;;
    handed) record handed "$tool" run handed --out "$out/handed.jsonl" ;;
    modes) record modes "$tool" run modes --backends bgmv --out "$out/modes.jsonl" --quiet ;;
    fuzz) record fuzz fuzz_in_processes ;;
    sanitize) LORA_BENCH_BUILD=$build record sanitize scripts/sanitize.sh ;;
    clock) record clock scripts/check-clock.py --tool "$tool" --backends bgmv,grouped,chunked,panel,auto ;;
    python) python ;;
    peers) peers ;;
    peers-wide) peers_wide ;;
    tax) tax ;;
    profile) profile ;;
    counters) counters ;;
  esac
}

{
  "$tool" --version
  date -u +'%Y-%m-%dT%H:%M:%SZ'
  nvidia-smi --query-gpu=name,driver_version,compute_cap,memory.total,clocks.max.sm,power.limit \
    --format=csv
} >"$out/provenance.txt"
for part in "${parts[@]}"; do
  run_part "$part"
done
cat "$out/commands.txt"
exit "$worst"
