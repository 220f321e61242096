#!/usr/bin/env bash
# The first minutes on a machine with an NVIDIA GPU: what is there, whether everything is right, how fast it is, and what
# the time goes into. Every part has a time limit, and a part that fails does not stop the others.
#
# Usage: tests/gpu/first.sh FOLDER [PART…]
# FOLDER takes the log and the figures (table.json). PART is one of run.py; by default all that fit ten minutes.
# Before: `tests/gpu/build`, on a machine with Rust.
set -uo pipefail
cd "$(dirname "$0")/../.."
folder=${1:?"usage: first.sh FOLDER [PART…]"}
shift
mkdir -p "$folder"
parts=("$@")
[[ $# -gt 0 ]] || parts=(parity curve profile speed)
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
{
    timeout 20 nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv,noheader
    grep -m1 'model name' /proc/cpuinfo
    grep -m1 -o -w -E 'amx_bf16|avx512_bf16' /proc/cpuinfo
    timeout 540 python3 tests/gpu/run.py "${parts[@]}" --shape 0.5b --shape 8b-4 --out "$folder/table.json"
} 2>&1 | tee "$folder/log"
# That of run.py, which comes last.
exit "${PIPESTATUS[0]}"
