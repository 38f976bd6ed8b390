#!/usr/bin/env bash
# Makes what a release consists of: a wheel, a package of Debian and a tarball, with checksums beside;
# tries them, and says how to tag. Hours with CUDA on two cores, some minutes without.
#   scripts/release.sh [--to FOLDER] [--without-cuda] [--uncommitted]
# --to: without it build/release-VERSION. --without-cuda: the host part alone; else there must be an
# nvcc, and the GPU code is for sm_80, sm_89, sm_90a and sm_100. --uncommitted: with changes that are
# in no commit, to try it.
set -euo pipefail
here=$PWD
cd "$(dirname "$0")/.."
version=$(sed -n 's/^project(lora-bench VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
folder=$PWD/build/release-$version
cuda=ON
uncommitted=false
while (($#)); do
  case $1 in
    --to) folder=$(cd "$here" && realpath -m "${2:?--to needs a folder}"); shift ;;
    --without-cuda) cuda=OFF ;;
    --uncommitted) uncommitted=true ;;
    *) echo "usage: release.sh [--to FOLDER] [--without-cuda] [--uncommitted]" >&2; exit 1 ;;
  esac
  shift
done
if ! $uncommitted && [[ -n $(git status --porcelain) ]]; then
  echo "release.sh: there are changes that no commit has; commit them, or give --uncommitted" >&2
  exit 1
fi
if [[ -d $folder && -n $(find "$folder" -mindepth 1 ! -name 'lora[-_]bench[-_]*' ! -name SHA256SUMS) ]]; then
  echo "release.sh: $folder holds files that are of no release; name another by --to" >&2
  exit 1
fi

scripts/setup.sh
build=build/release-tree
mkdir -p "$build" "$folder"
echo "Building $version into $build, see $build.log" >&2
{ cmake --preset portable -B "$build" -DLORA_BENCH_CUDA="$cuda" -DLORA_BENCH_RELEASE_ARCHITECTURES="$cuda" &&
  cmake --build "$build"; } >"$build.log" 2>&1 || { tail -n 30 "$build.log" >&2; exit 1; }

# What it needs of the machine that it is carried to.
needed=$(objdump -p "$build/src/lora-bench" | sed -n 's/^ *NEEDED *//p' |
  grep -v -E '^(libc|libm|libgcc_s|libdl|librt|libpthread|ld-linux[a-z0-9-]*)\.so' || true)
if [[ -n $needed ]]; then
  echo "release.sh: the program needs libraries that other machines lack: $needed" >&2
  exit 1
fi
libc=$(objdump -T "$build/src/lora-bench" | grep -o 'GLIBC_2\.[0-9]*' | sort -uV | tail -n 1)
platform=manylinux_${libc#GLIBC_}_$(uname -m)
platform=${platform/./_}

rm -f "$folder"/{lora-bench,lora_bench}[-_]* "$folder/SHA256SUMS"
pack=(cpack --config "$build/CPackConfig.cmake" -B "$build/packages")
"${pack[@]}" -G DEB >>"$build.log"
name=lora-bench-$version-linux-$(uname -m)
"${pack[@]}" -G TGZ -D CPACK_PACKAGE_FILE_NAME="$name" -D CPACK_PACKAGING_INSTALL_PREFIX=/ >>"$build.log"
mv "$build"/packages/*.deb "$build"/packages/*.tar.gz "$folder"
strip -o "$build/lora-bench" "$build/src/lora-bench"
wheel=$(scripts/make-wheel.sh "$build/lora-bench" "$folder" "$platform" | tail -n 1)

echo "Trying them" >&2
scripts/check-wheel.sh "$wheel"
trial=$(mktemp -d)
trap 'rm -rf "$trial"' EXIT
tar -xzf "$folder/$name.tar.gz" -C "$trial"
dpkg-deb -x "$folder"/*.deb "$trial/deb"
for program in "$trial/$name/bin/lora-bench" "$trial/deb/usr/bin/lora-bench"; do
  (cd "$trial" && "$program" verify smoke --backends cpu --quiet)
done

(cd "$folder" && sha256sum -- * >SHA256SUMS)
cat <<DONE
$(cd "$folder" && ls -sh1 | tail -n +2)
in $folder, for libc ${libc#GLIBC_} and later. To release this commit:
  git tag -a v$version -m "lora-bench $version" && git push origin v$version
DONE
