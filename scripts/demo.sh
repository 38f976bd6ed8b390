#!/usr/bin/env bash
# From a fresh machine to a proved, timed table: installs what is missing, builds, runs one scenario.
# About three minutes the first time on two cores without CUDA, seconds after that.
set -euo pipefail
cd "$(dirname "$0")/.."
started=$SECONDS

scripts/setup.sh
mkdir -p build
# A dot for every tenth step of a long build; nothing more when there is nothing to build.
build() {
  cmake --preset release && cmake --build --preset release
}
dots() {
  awk '/^\[[0-9]+\/[0-9]+\]/ && ++steps % 10 == 0 { printf "."; fflush(); dotted = 1 }
       END { if (dotted) print "" }' >&2
}
[ -x build/release/src/lora-bench ] ||
  echo "Building into build/release: two to six minutes, longer with CUDA or on a busy machine;
a dot for every ten steps" >&2
if ! build 2>&1 | tee build/release.log | dots; then
  tail -n 60 build/release.log >&2
  echo "The build failed; the whole output is in build/release.log" >&2
  exit 1
fi

tool=build/release/src/lora-bench
status=0
"$tool" run smoke || status=$?
cat >&2 <<HINT

That took $((SECONDS - started)) s. Next:
  $tool list scenarios      what there is to run
  $tool run decode          a decode step of a serving engine, proved and timed
  $tool verify              every backend through every level of proof
  $tool device              what this machine can do at best
HINT
exit "$status"
