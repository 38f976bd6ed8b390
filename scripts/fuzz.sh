#!/usr/bin/env bash
# Fuzzes the scenario parser and the reader of results. What crashes is left in build/fuzz/findings;
# inputs that reach new code join tests/fuzz/corpus.
#   scripts/fuzz.sh [SECONDS of each, 300]
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-300}
if ! [[ $seconds =~ ^[0-9]+$ ]]; then
  echo "usage: fuzz.sh [SECONDS of each]" >&2
  exit 1
fi
scripts/setup.sh --for test
mkdir -p build/fuzz/findings
if ! { cmake --preset fuzz && cmake --build --preset fuzz; } >build/fuzz.log 2>&1; then
  tail -n 60 build/fuzz.log >&2
  exit 1
fi

ran=0
for target in build/fuzz/tests/fuzz/*_fuzz; do
  [[ -x $target ]] || continue
  topic=$(basename "$target" _fuzz)
  grown=build/fuzz/corpus/$topic
  kept=tests/fuzz/corpus/$topic
  mkdir -p "$grown" "$kept"
  echo "== $topic, $seconds s"
  "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=65536 \
    -print_final_stats=1 -artifact_prefix="build/fuzz/findings/$topic-" "$grown" "$kept" \
    >"build/fuzz/$topic.log" 2>&1 || {
    tail -n 40 "build/fuzz/$topic.log"
    exit 1
  }
  grep -E '^stat::number_of_executed_units|^stat::peak_rss' "build/fuzz/$topic.log"
  # By edges and by the fewest files: a plain merge keeps a thousand, most for another loop count.
  "$target" -set_cover_merge=1 -use_counters=0 "$kept" "$grown" >>"build/fuzz/$topic.log" 2>&1
  ran=$((ran + 1))
done
if ((ran == 0)); then
  echo "fuzz.sh: no fuzz target was built" >&2
  exit 1
fi
echo "$ran targets, clean"
