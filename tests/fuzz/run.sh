#!/usr/bin/env bash
# Builds the fuzz targets and runs one: run.sh TARGET [SECONDS] [libFuzzer's flags...]
# What it finds goes to the folder `findings`; inputs of new coverage go to `working/TARGET`.
set -euo pipefail
cd "$(dirname "$0")"
target=$1
seconds=${2:-600}
host=$(rustc -vV | sed -n 's/^host: //p')
# What cargo-fuzz passes, less the sanitizers, which only a nightly compiler has. Build scripts are not instrumented,
# since a target is named.
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing"
cargo build --release --target "$host" --bin "$target"
mkdir -p findings "working/$target"
exec "${CARGO_TARGET_DIR:-target}/$host/release/$target" "working/$target" "corpus/$target" seeds/"$target" \
    -max_total_time="$seconds" -max_len=4096 -timeout=10 -rss_limit_mb=1024 -malloc_limit_mb=512 \
    -dict=words.dict -artifact_prefix=findings/ -print_final_stats=1 "${@:3}"
