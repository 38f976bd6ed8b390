#!/usr/bin/env bash
# Everything that must hold before a change lands: builds, tests, layout, lint, sanitizers.
# Some 40 minutes from nothing on two cores, less when nothing changed.
#   scripts/test.sh [--quick]     --quick: build and tests only
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

quick=false
case ${1:-} in
  "") ;;
  --quick) quick=true ;;
  *) echo "usage: test.sh [--quick]" >&2; exit 1 ;;
esac

passed=0
failed=0
skipped=0
started=$SECONDS

# A step that is no ctest run counts only when it fails or, with 77, cannot be tried: as one.
step() {
  local title=$1
  shift
  local from=$SECONDS
  echo "== $title"
  if "$@"; then
    echo "   ok, $((SECONDS - from)) s"
    return 0
  elif (($? == 77)); then
    skipped=$((skipped + 1))
    return 0
  fi
  echo "   FAILED after $((SECONDS - from)) s: $title"
  failed=$((failed + 1))
  return 1
}

# The named attribute of the first <testsuite> of a JUnit file.
junit() {
  sed -n "s/.*[[:space:]]$2=\"\([0-9]*\)\".*/\1/p;/<testcase/q" "$1" | head -n 1
}

# shellcheck disable=SC2317  # called through step
build() {
  local log=build/$1.log
  mkdir -p build
  if ! { cmake --preset "$1" && cmake --build --preset "$1"; } >"$log" 2>&1; then
    tail -n 60 "$log"
    return 1
  fi
}

run_tests() {
  local preset=$1
  local report=$PWD/build/$preset/junit.xml
  local from=$SECONDS
  shift
  mkdir -p "build/$preset"
  rm -f "$report"
  echo "== tests, $preset"
  ctest --preset "$preset" -j "$(($(nproc) + 1))" --output-junit "$report" "$@" >"build/$preset/ctest.log" 2>&1
  local status=$?
  local all=0 bad=0 off=0 skip=0
  if [[ -f $report ]]; then
    all=$(junit "$report" tests)
    bad=$(junit "$report" failures)
    off=$(junit "$report" disabled)
    skip=$(junit "$report" skipped)
  fi
  skip=$((skip + off))
  if ((status != 0 && bad == 0)); then
    bad=1
    all=$((all + 1))
  fi
  if ((bad)); then
    grep -v -E '(Passed|Skipped) +[0-9.]+ sec$|^ +Start +[0-9]+:|\(Skipped\)$' "build/$preset/ctest.log" | head -n 400
  fi
  passed=$((passed + all - bad - skip))
  failed=$((failed + bad))
  skipped=$((skipped + skip))
  echo "   $((all - bad - skip)) passed, $bad failed, $skip skipped; $((SECONDS - from)) s"
}

finish() {
  echo "took $((SECONDS - started)) s"
  echo "$passed passed, $failed failed, $skipped skipped"
  if ((failed == 0 && passed > 0)); then
    exit 0
  fi
  exit 1
}

echo "Building and testing lora-bench: some 40 minutes from nothing on two cores"
step "set-up" scripts/setup.sh --for test || finish

step "build, dev" build dev && run_tests dev
step "wheel" scripts/check-wheel.sh build/dev/src/lora-bench
$quick && finish
step "layout" scripts/format.sh --check
if [[ -f build/dev/compile_commands.json ]]; then
  step "lint" scripts/tidy.sh
fi
step "build, asan" build asan && { run_tests asan; run_tests asan-cli; }
step "build, tsan" build tsan && run_tests tsan
finish
