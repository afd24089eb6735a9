#!/bin/bash
# sa-bench: sglang.bench_serving against the endpoint; for each concurrency a warm-up, then the measurement
set -euo pipefail

python3 -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("sglang.bench_serving") is None)' >/dev/null 2>&1 || {
  echo 'error: the image has no Python module sglang.bench_serving, which sa-bench runs' >&2
  exit 127
}

measure() {
  python3 -m sglang.bench_serving \
    --backend sglang-oai \
    --base-url "$SRT_FRONTEND_URL" \
    --model Qwen/Qwen3-0.6B \
    --tokenizer /models/qwen \
    --dataset-name random-ids \
    --random-input-len 1000 \
    --random-output-len 100 \
    --random-range-ratio 0.8 \
    --disable-tqdm \
    "$@"
}

# 1 in flight
measure --max-concurrency 1 --num-prompts 2 --request-rate 250 --seed 4242 --output-file /dev/null
measure --max-concurrency 1 --num-prompts 10 --request-rate 300 --output-file "$SRT_RESULTS_DIR/concurrency-1.jsonl"

# 64 in flight
measure --max-concurrency 64 --num-prompts 128 --request-rate 250 --seed 4242 --output-file /dev/null
measure --max-concurrency 64 --num-prompts 640 --request-rate 300 --output-file "$SRT_RESULTS_DIR/concurrency-64.jsonl"
