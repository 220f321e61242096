#!/usr/bin/env bash
# Builds the stand-ins of libcuda, libnvrtc and libcublas into a folder:  tests/standin/build.sh OUT
# A program that has OUT in LD_LIBRARY_PATH finds a GPU. Needs g++ 12 or newer, here and where the program runs.
set -euo pipefail
out=${1:?"usage: build.sh OUT"}
here=$(cd "$(dirname "$0")" && pwd)
compiler=${CXX:-g++}
if ! command -v "$compiler" >/dev/null; then
    echo "build.sh: \`$compiler\` is not found; the stand-ins are C++ and compile kernels with it (Debian: apt install g++)" >&2
    exit 1
fi
mkdir -p "$out"
out=$(cd "$out" && pwd)

# Builds beside the place and renames: a program that has the old one open keeps it.
library() {
    local name=$1 version=$2
    shift 2
    "$compiler" -std=c++17 -O2 -Wall -Wextra -fPIC -shared -fvisibility=hidden -U_FORTIFY_SOURCE -static-libstdc++ \
        -static-libgcc -Wl,--as-needed -Wl,-soname,"$name.$version" -o "$out/$name.$version.new" "$@" -ldl
    mv "$out/$name.$version.new" "$out/$name.$version"
    ln -sf "$name.$version" "$out/$name"
}

cd "$here"
library libcuda.so 1 memory.cpp copies.cpp device.cpp modules.cpp launch.cpp
library libnvrtc.so 13 -DMACHINE="\"$here/machine\"" nvrtc.cpp files.cpp
library libcublas.so 13 -O3 -march=native cublas.cpp product.cpp "$out/libcuda.so.1" -Wl,-rpath,'$ORIGIN'
echo "stand-ins of libcuda, libnvrtc and libcublas: $out"
