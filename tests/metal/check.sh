#!/usr/bin/env bash
# Metal without a Mac, as far as that goes: the room behind the door is type-checked for macOS, the shaders are read by
# clang with Metal's kinds of memory kept apart, and they run on the processor against twins in f64.
# Needs rustup or a toolchain that has the target, python3 with venv, g++.
#
#     tests/metal/check.sh [rust|text|run]…      all three if none is named
set -euo pipefail
cd "$(dirname "$0")/../.."
target=aarch64-apple-darwin
built=${CARGO_TARGET_DIR:-$HOME/.cache/tunebox-target}
steps=("$@")
((${#steps[@]})) || steps=(rust text run)

# No crate of these compiles C, which would ask for Apple's SDK.
rust() {
    rustup target add "$target" >/dev/null 2>&1 || true
    CARGO_TARGET_DIR=$built cargo clippy --release --locked --target "$target" --package tunebox-compute \
        --all-targets -- --deny warnings
}

text() {
    local clang=$built/metal/clang
    [[ -x $clang/bin/python ]] || python3 -m venv "$clang"
    "$clang/bin/python" -c 'import clang.cindex' 2>/dev/null || "$clang/bin/pip" install --quiet libclang==18.1.1
    "$clang/bin/python" tests/metal/check.py
}

# Types of activations, head sizes that do and do not divide by 32, groups of query heads.
run() {
    mkdir -p "$built/metal"
    local activation head group program=$built/metal/emulated
    while read -r activation head group; do
        (cd tests/metal && g++ -std=c++17 -O2 -w -fno-strict-aliasing -ffp-contract=off -I. \
            "-DACTIVATION=$activation" "-DHEAD_DIM=$head" "-DGROUP=$group" twins.cpp -o "$program")
        echo -n "activation $activation, head $head, group $group: "
        "$program"
    done <<<$'0 64 2\n1 64 1\n2 80 3\n1 256 1'
}

for step in "${steps[@]}"; do
    case $step in
    rust | text | run) "$step" ;;
    *) echo "\`$step\` is no step; rust, text and run are" >&2 && exit 2 ;;
    esac
done
