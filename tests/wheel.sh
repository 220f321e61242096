#!/usr/bin/env bash
# Builds the program as a wheel, installs it into an empty environment, and there trains the sample and exports it.
# Usage: tests/wheel.sh [FOLDER], which takes the wheel. Needs Python 3 with venv; takes `maturin` from the path, or else
# installs it for this script alone.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
place=$(mktemp -d)
trap 'rm -r "$place"' EXIT
wheels=$(realpath -m "${1:-$place/wheels}")
cd "$root"
if ! command -v maturin >/dev/null; then
    python3 -m venv "$place/build"
    "$place/build/bin/pip" install --quiet 'maturin>=1.8,<2'
    PATH="$PATH:$place/build/bin"
fi
maturin build --quiet --release --locked --manifest-path runtime/cli/Cargo.toml --out "$wheels"
python3 -m venv "$place/empty"
"$place/empty/bin/pip" install --quiet --no-index "$wheels"/tunebox-*.whl
cd "$place"
export PATH="$place/empty/bin:$PATH"
[[ $(command -v tunebox) == "$place"/empty/bin/tunebox ]]
tunebox train --sample --name installed
tunebox export runs/installed --to gguf --out installed.gguf
answer=$(tunebox generate installed.gguf "What is 3 + 4?" --temperature 0)
echo "$answer"
[[ $answer == *seven* || $answer == *7* ]]
