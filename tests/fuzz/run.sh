#!/usr/bin/env bash
# Longer searches: tests/fuzz/run.sh [SECONDS] [TARGET]   (60 seconds on every target, unless told otherwise)
# Needs `cargo install --locked cargo-fuzz` and a C++ compiler; stable Rust is enough. Installs nothing itself.
# Inputs that broke something lie in the folder that is named at the end; copy them to corpus/TARGET to keep them.
set -euo pipefail
cd "$(dirname "$0")"
seconds="${1:-60}"
place="${TUNEBOX_FUZZ_FOLDER:-${TMPDIR:-/tmp}/tunebox-fuzz}"
build="${CARGO_TARGET_DIR:-$HOME/.cache/tunebox-fuzz-target}"

if ! command -v cargo-fuzz >/dev/null; then
  echo "cargo-fuzz is not here: \`cargo install --locked cargo-fuzz\` brings it." >&2
  echo "Without it, and without coverage: \`cargo run --release -p tunebox-fuzz -- TARGET SECONDS\`." >&2
  exit 2
fi
# No sanitizer: the runtime is safe Rust but for a few files, and stable Rust has none.
cargo fuzz build --fuzz-dir libfuzzer --sanitizer none --target-dir "$build" target
binary="$(find "$build" -path '*/release/target' -type f | head -n 1)"

targets=("${@:2}")
if [ "${#targets[@]}" -eq 0 ]; then
  targets=()
  for folder in corpus/*/; do targets+=("$(basename "$folder")"); done
fi
status=0
for target in "${targets[@]}"; do
  mkdir -p "$place/$target/found" "$place/$target/findings"
  log="$place/$target/log"
  words=()
  if [ -f "words/$target.dict" ]; then words=("-dict=words/$target.dict"); fi
  TUNEBOX_FUZZ_TARGET="$target" "$binary" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=3000 \
    -malloc_limit_mb=1500 -max_len=4096 -print_final_stats=1 -artifact_prefix="$place/$target/findings/" "${words[@]}" \
    "$place/$target/found" "corpus/$target" >"$log" 2>&1 || status=1
  executions="$(grep -o 'number_of_executed_units: [0-9]*' "$log" | grep -o '[0-9]*$' || echo 0)"
  echo "$target: $executions executions, $(find "$place/$target/findings" -type f | wc -l) findings in $place/$target/findings"
done
exit "$status"
