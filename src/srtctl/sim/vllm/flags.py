"""The command-line flags of `vllm serve`, as data.

Source of the names and kinds: vLLM's public engine and server arguments (0.1x). `vllm-rs serve` takes the same ones, and
`--grpc-port`, which belongs to its native server alone. A flag of another program (Dynamo's `--endpoint`, say, or
SGLang's `--tp-size`) does not belong here: the real server refuses it.

Each line lists flags of one kind, aliases joined by `|`, the first name gives the attribute; one letter or a name that
begins with a dash is a short spelling. Kinds: `text`, `number` (int), `decimal` (float), `json` (text that must parse as
JSON), `switch` (no value; `--no-` turns it off), `flag` (no value, no opposite), `texts` (one or more values).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

FLAGS: dict[str, str] = {
    "text": """
        host uds model tokenizer tokenizer-mode tokenizer-revision revision code-revision dtype quantization|-q config
        hf-config-path hf-token runner convert task load-format download-dir config-format model-impl
        generation-config allowed-local-media-path kv-cache-dtype block-hash-algo prefix-caching-hash-algo
        mamba-cache-dtype mamba-ssm-cache-dtype mamba-cache-mode mamba-backend scheduling-policy scheduler-cls
        distributed-executor-backend master-addr data-parallel-address|-dpa data-parallel-backend|-dpb
        all2all-backend expert-placement-strategy worker-cls worker-extension-cls dbo-decode-token-threshold
        attention-backend moe-backend linear-backend mm-encoder-attn-backend mm-encoder-tp-mode mm-processor-cache-type
        safetensors-load-strategy guided-decoding-backend reasoning-parser reasoning-parser-plugin tool-call-parser
        tool-parser-plugin tool-server chat-template chat-template-content-format response-role uvicorn-log-level
        ssl-keyfile ssl-certfile ssl-ca-certs ssl-ciphers root-path log-config-file otlp-traces-endpoint
        show-hidden-metrics-for-version logits-processor-pattern optimization-level|-O performance-mode
        kv-offloading-backend ir-op-priority use-tqdm-on-load renderer collect-detailed-traces
        """,
    "json": """
        kv-transfer-config kv-events-config ec-transfer-config compilation-config|-cc speculative-config|-sc
        attention-config|-ac additional-config hf-overrides override-generation-config model-loader-extra-config
        structured-outputs-config reasoning-config pooler-config eplb-config kernel-config profiler-config
        weight-transfer-config offload-config default-chat-template-kwargs default-mm-loras mm-processor-kwargs
        limit-mm-per-prompt media-io-kwargs ssm-config parallel-config scheduler-config
        """,
    "number": """
        port api-server-count|-asc seed max-logprobs tensor-parallel-size|-tp pipeline-parallel-size|-pp
        prefill-context-parallel-size|-pcp decode-context-parallel-size|-dcp dcp-kv-cache-interleave-size
        cp-kv-cache-interleave-size data-parallel-size|-dp data-parallel-rank|-dpn data-parallel-start-rank|-dpr
        data-parallel-size-local|-dpl data-parallel-rpc-port|-dpp nnodes|-n node-rank|-r master-port
        distributed-timeout-seconds dbo-prefill-token-threshold num-redundant-experts ubatch-size
        max-parallel-loading-workers ray-workers-use-nsight block-size swap-space num-gpu-blocks-override mamba-block-size
        max-num-seqs max-num-partial-prefills max-long-partial-prefills long-prefill-token-threshold
        max-cudagraph-capture-size stream-interval max-loras max-lora-rank max-cpu-loras lora-extra-vocab-size
        max-log-len h11-max-incomplete-event-size h11-max-header-count ssl-cert-reqs mm-processor-cache-gb
        mm-shm-cache-max-object-size-mb video-pruning-rate logprobs-mode-limit shutdown-timeout
        """,
    "size": "max-model-len max-num-batched-tokens kv-cache-memory-bytes",
    "decimal": "gpu-memory-utilization cpu-offload-gb kv-offloading-size watermark kv-sharing-ratio",
    "switch": """
        trust-remote-code enforce-eager enable-prefix-caching enable-chunked-prefill async-scheduling
        enable-expert-parallel|-ep enable-eplb enable-elastic-ep enable-dbo enable-ep-weight-filter
        enable-lora fully-sharded-loras specialize-active-lora enable-tower-connector-lora enable-sleep-mode
        enable-cumem-allocator disable-custom-all-reduce disable-nccl-for-dp-synchronization disable-sliding-window
        disable-cascade-attn disable-hybrid-kv-cache-manager disable-chunked-mm-input skip-tokenizer-init
        enable-prompt-embeds enable-prompt-adapter skip-mm-profiling mm-encoder-only language-model-only
        interleave-mm-strings calculate-kv-scales kv-sharing-fast-prefill cudagraph-metrics kv-cache-metrics
        enable-flashinfer-autotune enable-layerwise-nvtx-tracing enable-mfu-metrics enable-logging-iteration-details
        enable-return-routed-experts scheduler-reserve-full-isl fail-on-environ-validation numa-bind
        allow-credentials disable-uvicorn-access-log disable-uvicorn-metrics-access-log disable-log-requests
        enable-log-requests enable-log-outputs enable-log-deltas disable-log-stats aggregate-engine-logging
        enable-auto-tool-choice exclude-tools-when-tool-choice-none return-tokens-as-token-ids
        disable-frontend-multiprocessing enable-request-id-headers enable-force-include-usage
        enable-server-load-tracking enable-prompt-tokens-details enable-ssl-refresh enable-tokenizer-info-endpoint
        trust-request-chat-template disable-fastapi-docs enable-offline-docs tokens-only
        """,
    "flag": """
        headless data-parallel-hybrid-lb|-dph data-parallel-external-lb|-dpe
        data-parallel-multi-port-external-lb|-dpm grpc
        """,
    "texts": """
        served-model-name allowed-origins allowed-methods allowed-headers api-key lora-modules middleware
        logits-processors allowed-media-domains cudagraph-capture-sizes ignore-patterns lora-target-modules
        """,
}
#: Of the native server; OpenEngine's flags are those of its public branch.
NATIVE = {"number": "grpc-port openengine-port", "text": "openengine-host"}
_SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}


@dataclass(frozen=True)
class Flag:
    """One flag: its long name without dashes, its short spellings with one, and its kind (see the module's text)."""

    name: str
    short: tuple[str, ...]
    kind: str


def flags(*, native: bool) -> Iterator[Flag]:
    """All flags of the table, one by one; with those of the `native` server."""
    for table in (FLAGS, NATIVE) if native else (FLAGS,):
        for kind, words in table.items():
            for word in words.split():
                name, *short = word.split("|")
                yield Flag(name, tuple(short), kind)


def _json(text: str) -> str:
    json.loads(text)
    return text


def _size(text: str) -> int:
    """A number, with vLLM's suffixes: `16k` is 16,000 and `16K` 16,384."""
    factor = _SUFFIXES.get(text[-1:], 1)
    return int(float(text[:-1]) * factor) if factor > 1 else int(text)


_json.__name__, _size.__name__ = "json", "size"  # argparse prints it: "invalid json value"

_KINDS: dict[str, dict[str, Any]] = {
    "text": {"type": str},
    "json": {"type": _json},
    "number": {"type": int},
    "size": {"type": _size},
    "decimal": {"type": float},
    "switch": {"action": argparse.BooleanOptionalAction},
    "flag": {"action": "store_true"},
    "texts": {"type": str, "nargs": "+"},
}


def parser(*, native: bool) -> argparse.ArgumentParser:
    """The parser of `serve`. Unknown flags and bad values exit with 2; abbreviations are unknown."""
    prog = "vllm-rs serve" if native else "vllm serve"
    result = argparse.ArgumentParser(prog=prog, usage=f"{prog} [model_tag] [options]", allow_abbrev=False)
    result.add_argument("model_tag", nargs="?")
    for flag in flags(native=native):
        spellings = (*flag.short, f"--{flag.name}")
        result.add_argument(*spellings, dest=flag.name.replace("-", "_"), **_KINDS[flag.kind])
    return result


def parse(argv: Sequence[str], *, native: bool) -> argparse.Namespace:
    """The parsed flags of `serve`; absent ones are None (flags without opposite: False).

    `--some_flag` counts as `--some-flag`, as in vLLM. Raises SystemExit(2) as argparse does.
    """
    words = [_dashed(word) if word.startswith("--") else word for word in argv]
    return parser(native=native).parse_args(words)


def _dashed(word: str) -> str:
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value
