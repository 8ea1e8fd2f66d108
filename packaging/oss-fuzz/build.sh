#!/usr/bin/env bash
# Builds the fuzz targets for OSS-Fuzz, with their corpora and limits, into OUT. The working
# directory is the project; the toolchain has `cargo fuzz`.
set -euo pipefail

cargo fuzz build -O
built=fuzz/target/$(rustc -vV | sed -n 's/^host: //p')/release
for target in $(cargo fuzz list); do
    cp "$built/$target" "$OUT/"
    (cd "fuzz/corpus/$target" && zip -q -r "$OUT/${target}_seed_corpus.zip" .)
    # As docs/runs/fuzzing.md: longer inputs only take longer.
    case $target in
        live_image | operations | log) longest=160 ;;
        directory) longest=128 ;;
        record) longest=64 ;;
        *) longest=600 ;;
    esac
    printf '[libfuzzer]\nmax_len = %s\ntimeout = 10\n' "$longest" >"$OUT/$target.options"
done
