#!/usr/bin/env bash
# Installs what is missing to build (and with --for test, to test) lora-bench. Only Debian and Ubuntu
# are handled; elsewhere it says what to install. Nothing is done when nothing is missing.
#   scripts/setup.sh [--for build|test] [--dry-run]
set -euo pipefail

purpose=build
dry_run=false
while (($#)); do
  case $1 in
    --for) purpose=${2:?--for needs build or test}; shift ;;
    --dry-run) dry_run=true ;;
    *) echo "usage: setup.sh [--for build|test] [--dry-run]" >&2; exit 1 ;;
  esac
  shift
done

packages=(g++ cmake ninja-build git libcli11-dev libfmt-dev libeigen3-dev libyaml-cpp-dev
  nlohmann-json3-dev)
case $purpose in
  build) ;;
  # Named by version: another clang-format lays the code out otherwise.
  test) packages+=(doctest-dev python3-dev python3-venv python3-numpy python3-matplotlib
    clang-14 clang-format-14 clang-tidy-14) ;;
  *) echo "setup.sh: --for $purpose; allowed: build, test" >&2; exit 1 ;;
esac

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  absent=()
  for tool in c++ cmake ninja git; do
    command -v "$tool" >/dev/null || absent+=("$tool")
  done
  if ((${#absent[@]})); then
    echo "This system has no apt. Install these first: ${absent[*]}" >&2
    echo "(CMake 3.25 or newer, a C++20 compiler; libraries that are missing are fetched)" >&2
    exit 1
  fi
  exit 0
fi

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $state == installed ]] || missing+=("$package")
done

if $dry_run; then
  echo "needed: ${packages[*]}"
  echo "missing: ${missing[*]:-none}"
  exit 0
fi

if ((${#missing[@]})); then
  install="apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
  as_root=()
  if ((EUID != 0)); then
    if ! sudo -n true 2>/dev/null; then
      echo "These packages are missing: ${missing[*]}" >&2
      become_root="su -c"
      command -v sudo >/dev/null && become_root="sudo sh -c"
      echo "Run this, then start again:" >&2
      echo "  $become_root '$install'" >&2
      exit 1
    fi
    as_root=(sudo -n)
  fi
  log=$(mktemp)
  echo "Installing ${missing[*]} (one to three minutes; needs the network once) ..." >&2
  if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive sh -c "$install" >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "Installing failed; the whole output is in $log. The line was:" >&2
    echo "  $install" >&2
    exit 1
  fi
  rm -f "$log"
fi

version=$(cmake --version | sed -n '1s/[^0-9]*\([0-9.]*\).*/\1/p')
if [[ $(printf '%s\n3.25\n' "$version" | sort -V | head -n 1) != 3.25 ]]; then
  echo "CMake $version is too old: 3.25 or newer is needed (Debian 12 and Ubuntu 24.04 have it)" >&2
  exit 1
fi
