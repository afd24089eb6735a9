"""The command-line flags of the SGLang server, as data.

Source of the names and kinds: SGLang's public `server_arguments.md` and `server_args.py` (0.5.x), deprecated spellings
included, and for OpenEngine its public branch. A flag of another program (Dynamo's `--dump-config-to`, say) does not
belong here: the real server refuses it.

Each line lists flags of one kind, aliases joined by `|`, the first name gives the attribute. Kinds:
`text`, `number` (int), `decimal` (float), `json` (text that must parse as JSON), `switch` (no value),
`texts`, `numbers`, `decimals` (one or more values), `optional` (zero or one value).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

FLAGS: dict[str, str] = {
    "text": """
        model-path|model tokenizer-path tokenizer-mode load-format revision model-impl host fastapi-root-path warmups
        dtype quantization quantization-param-path kv-cache-dtype modelopt-quant modelopt-checkpoint-restore-path
        modelopt-checkpoint-save-path modelopt-export-path rl-quant-profile schedule-policy radix-eviction-policy
        device constrained-json-whitespace-pattern download-dir custom-sigquit-handler log-level log-level-http
        log-requests-format crash-dump-folder tokenizer-metrics-custom-labels-header otlp-traces-endpoint
        export-metrics-to-file-dir api-key admin-api-key served-model-name weight-version chat-template
        hf-chat-template-name completion-template file-storage-path reasoning-parser tool-call-parser tool-server
        sampling-defaults load-balance-method dist-init-addr|nccl-init-addr lora-eviction-policy lora-backend
        attention-backend prefill-attention-backend decode-attention-backend sampling-backend grammar-backend
        mm-attention-backend nsa-prefill-backend dsa-prefill-backend nsa-decode-backend dsa-decode-backend
        dsa-topk-backend fp8-gemm-backend fp4-gemm-backend linear-attn-backend linear-attn-prefill-backend
        linear-attn-decode-backend speculative-algorithm speculative-draft-model-path|speculative-draft-model
        speculative-draft-model-revision speculative-draft-load-format speculative-token-map
        speculative-attention-mode speculative-draft-attention-backend speculative-moe-runner-backend
        speculative-moe-a2a-backend speculative-draft-model-quantization speculative-ngram-match-type moe-a2a-backend
        moe-runner-backend flashinfer-mxfp4-moe-precision flashinfer-allreduce-fusion-backend deepep-mode
        deepep-dispatcher-output-dtype deepep-config ep-dispatch-algorithm init-expert-location eplb-algorithm
        expert-distribution-recorder-mode elastic-ep-backend mooncake-ib-device mamba-ssm-dtype
        mamba-scheduler-strategy mamba-radix-cache-strategy mamba-backend hicache-write-policy hicache-io-backend
        hicache-mem-layout hicache-storage-backend hicache-storage-prefetch-policy
        hicache-storage-backend-extra-config kt-weight-path kt-method dllm-algorithm dllm-algorithm-config
        offload-mode piecewise-cuda-graph-compiler cuda-graph-backend-decode cuda-graph-backend-prefill
        cuda-graph-tc-compiler torchao-config rl-on-policy-target nsa-prefill-cp-mode dsa-prefill-cp-mode cp-strategy
        debug-tensor-dump-output-folder debug-tensor-dump-input-file debug-tensor-dump-inject
        disaggregation-transfer-backend disaggregation-ib-device encoder-transfer-backend
        remote-instance-weight-loader-seed-instance-ip remote-instance-weight-loader-backend pdmux-config-path
        decrypted-config-file decrypted-draft-config-file msprobe-dump-config ssl-keyfile ssl-certfile ssl-ca-certs
        ssl-keyfile-password openengine-host openengine-advertise-host
        """,
    "json": """
        model-loader-extra-config kv-events-config json-model-override-args preferred-sampling-params mm-process-config
        limit-mm-data-per-request forward-hooks hierarchical-sparse-attention-extra-config
        """,
    "number": """
        tokenizer-worker-num context-length port grpc-port openengine-port nccl-port max-running-requests max-queued-requests
        max-total-tokens chunked-prefill-size prefill-max-requests max-prefill-tokens
        priority-scheduling-preemption-threshold page-size prefill-delayer-max-delay-passes
        tensor-parallel-size|tp-size|tp pipeline-parallel-size|pp-size|pp data-parallel-size|dp-size|dp
        attention-context-parallel-size|attn-cp-size moe-data-parallel-size|moe-dp-size
        decode-context-parallel-size|dcp-size expert-parallel-size|ep-size|ep pp-max-micro-batch-size
        pp-async-batch-depth stream-interval random-seed dist-timeout base-gpu-id gpu-id-step log-requests-level
        decode-log-interval nnodes node-rank max-lora-rank max-loras-per-batch max-loaded-loras max-lora-chunk-size
        speculative-num-steps speculative-eagle-topk speculative-num-draft-tokens speculative-draft-window-size
        speculative-ngram-min-bfs-breadth speculative-ngram-max-bfs-breadth speculative-ngram-max-trie-depth
        speculative-ngram-capacity ep-num-redundant-experts eplb-rebalance-num-iterations
        eplb-rebalance-layers-per-chunk expert-distribution-recorder-buffer-size moe-dense-tp-size
        max-mamba-cache-size mamba-track-interval hicache-size kt-cpuinfer kt-threadpool-count kt-num-gpu-experts
        kt-max-deferred-experts-per-token cpu-offload-gb offload-group-size offload-num-in-group offload-prefetch-step
        multi-item-scoring-delimiter cuda-graph-max-bs cuda-graph-max-bs-decode cuda-graph-max-bs-prefill
        torch-compile-max-bs piecewise-cuda-graph-max-tokens triton-attention-num-kv-splits
        triton-attention-split-tile-size num-continuous-decode-steps scheduler-recv-interval
        dynamic-batch-tokenizer-batch-size disaggregation-bootstrap-port num-reserved-decode-tokens
        disaggregation-decode-polling-interval engine-info-bootstrap-port weight-loader-prefetch-num-threads
        remote-instance-weight-loader-seed-instance-service-port sm-group-num mm-max-concurrent-calls
        mm-per-request-timeout
        """,
    "decimal": """
        mem-fraction-static schedule-conservativeness swa-full-tokens-ratio prefill-delayer-token-usage-low-watermark
        prefill-delayer-queue-min-ratio prefill-delayer-max-delay-ms watchdog-timeout soft-watchdog-timeout
        gc-warning-threshold-secs lora-drain-wait-threshold speculative-accept-threshold-single
        speculative-accept-threshold-acc eplb-min-rebalancing-utilization-threshold mamba-full-memory-ratio
        hicache-ratio tbo-token-distribution-threshold dynamic-batch-tokenizer-batch-timeout hybrid-kvcache-ratio
        load-watch-interval
        """,
    "switch": """
        skip-tokenizer-init trust-remote-code is-embedding enable-multimodal grpc-mode skip-server-warmup
        checkpoint-engine-wait-weights-before-ready enable-fp32-lm-head quantize-and-serve enable-quant-communications
        enable-dynamic-chunking enable-priority-scheduling abort-on-priority-when-disabled
        schedule-low-priority-values-first disable-hybrid-swa-memory enable-prefill-delayer
        incremental-streaming-output|stream-output constrained-json-disable-any-whitespace sleep-on-idle log-requests
        show-time-cost enable-metrics enable-mfu-metrics enable-metrics-for-all-schedulers collect-tokens-histogram
        enable-request-time-stats-logging enable-trace export-metrics-to-file enable-cache-report enable-lora
        enable-lora-overlap-loading disable-flashinfer-autotune enable-multi-layer-eagle
        enable-flashinfer-allreduce-fusion enable-aiter-allreduce-fusion enable-eplb
        enable-expert-distribution-metrics enable-elastic-expert-backup enable-deepep-waterfill elastic-ep-rejoin
        enable-hierarchical-cache enable-lmcache disable-radix-cache disable-cuda-graph disable-cuda-graph-padding
        enable-profile-cuda-graph enable-cudagraph-gc enable-layerwise-nvtx-marker enable-nccl-nvls enable-symm-mem
        disable-flashinfer-cutlass-moe-fp4-allgather enable-tokenizer-batch-encode disable-tokenizer-batch-decode
        disable-outlines-disk-cache disable-custom-all-reduce enable-mscclpp enable-torch-symm-mem
        disable-overlap-schedule enable-mixed-chunk enable-dp-attention enable-dp-lm-head enable-two-batch-overlap
        enable-single-batch-overlap enable-torch-compile enable-torch-compile-debug-mode disable-piecewise-cuda-graph
        enforce-piecewise-cuda-graph enable-piecewise-cuda-graph enable-breakable-cuda-graph enable-nan-detection
        enable-p2p-check triton-attention-reduce-in-fp32 delete-ckpt-after-loading enable-memory-saver
        enable-weights-cpu-backup enable-draft-weights-cpu-backup allow-auto-truncate enable-custom-logit-processor
        flashinfer-mla-disable-ragged disable-shared-experts-fusion disable-chunked-prefix-cache
        disable-fast-image-processor keep-mm-feature-on-device enable-return-hidden-states
        enable-return-routed-experts enable-deterministic-inference enable-attn-tp-input-scattered
        enable-nsa-prefill-context-parallel enable-dsa-prefill-context-parallel enable-prefill-context-parallel
        enable-prefill-cp enable-fused-qk-norm-rope enable-precise-embedding-interpolation
        enable-dynamic-batch-tokenizer disaggregation-decode-enable-offload-kvcache
        disaggregation-decode-enable-radix-cache disaggregation-decode-enable-fake-auto encoder-only language-only
        weight-loader-disable-mmap weight-loader-prefetch-checkpoints
        remote-instance-weight-loader-start-seed-via-transfer-engine enable-pdmux
        enable-broadcast-mm-inputs-process mm-enable-dp-encoder enable-mm-global-cache enable-prefix-mm-cache
        enable-ep-moe enable-deepep-moe prefill-round-robin-balance enable-flashinfer-cutlass-moe
        enable-flashinfer-cutedsl-moe enable-flashinfer-trtllm-moe enable-triton-kernel-moe
        enable-flashinfer-mxfp4-moe
        """,
    "texts": """
        log-requests-target uvicorn-access-log-exclude-prefixes tokenizer-metrics-allowed-custom-labels
        prompt-tokens-buckets generation-tokens-buckets lora-target-modules lora-paths custom-weight-loader
        encoder-urls
        """,
    "numbers": """
        cuda-graph-bs cuda-graph-bs-decode cuda-graph-bs-prefill piecewise-cuda-graph-tokens numa-node
        debug-tensor-dump-layers remote-instance-weight-loader-send-weights-group-ports
        """,
    "decimals": """
        bucket-time-to-first-token bucket-inter-token-latency bucket-e2e-request-latency
        prefill-delayer-forward-passes-buckets prefill-delayer-wait-seconds-buckets
        """,
    "optional": "model-checksum",
}

# Flags with a closed set of values that matters here; others are free text, as a newer engine may know more of them.
CHOICES: dict[str, tuple[str, ...]] = {"disaggregation-mode": ("null", "prefill", "decode")}


@dataclass(frozen=True)
class Flag:
    """One flag: all its spellings without dashes, and its kind (see the module's text)."""

    names: tuple[str, ...]
    kind: str


def flags() -> Iterator[Flag]:
    """All flags of the table, one by one."""
    for kind, words in FLAGS.items():
        for word in words.split():
            yield Flag(tuple(word.split("|")), kind)
    for name in CHOICES:
        yield Flag((name,), "choice")


def _json(text: str) -> str:
    json.loads(text)
    return text


_json.__name__ = "json"  # argparse prints it: "invalid json value"

_KINDS: dict[str, dict[str, Any]] = {
    "text": {"type": str},
    "json": {"type": _json},
    "number": {"type": int},
    "decimal": {"type": float},
    "switch": {"action": "store_true"},
    "texts": {"type": str, "nargs": "+"},
    "numbers": {"type": int, "nargs": "+"},
    "decimals": {"type": float, "nargs": "+"},
    "optional": {"type": str, "nargs": "?"},
    "choice": {"type": str},
}


def parser() -> argparse.ArgumentParser:
    """The server's argument parser. Unknown flags and bad values exit with 2; unique abbreviations pass, as there."""
    usage = "launch_server.py --model-path MODEL_PATH [options]"
    result = argparse.ArgumentParser(prog="launch_server.py", usage=usage)
    for flag in flags():
        name = flag.names[0]
        extra: dict[str, Any] = {"required": True} if name == "model-path" else {}
        if name in CHOICES:
            extra["choices"] = CHOICES[name]
        spellings = (f"--{spelling}" for spelling in flag.names)
        result.add_argument(*spellings, dest=name.replace("-", "_"), **_KINDS[flag.kind], **extra)
    return result


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The parsed flags; absent ones are None (switches: False). Raises SystemExit(2) as argparse does."""
    return parser().parse_args(argv)
