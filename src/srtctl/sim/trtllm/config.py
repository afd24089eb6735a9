"""The settings of a simulated TensorRT-LLM server, from its command line and its YAML file.

Source of the flags: TensorRT-LLM's public `commands/serve.py`; the file may set what a flag sets, and wins.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from srtctl.sim.openengine.engine import Role

DEFAULT_PORT = 8000
DEFAULT_BLOCK = 32
DEFAULT_TOTAL_TOKENS = 65536
DEFAULT_TRANSFER_SECONDS = 60.0
ROLES: Mapping[str, Role] = {"CONTEXT": "prefill", "GENERATION": "decode"}

_TEXT = """
    tokenizer custom_tokenizer host backend log_level kv_cache_dtype revision reasoning_parser tool_parser
    metadata_server_config_file server_role otlp_traces_endpoint disagg_cluster_uri media_io_kwargs chat_template
    served_model_name
"""
_NUMBER = """
    port max_beam_width max_batch_size max_num_tokens max_seq_len tp_size pp_size cp_size ep_size cluster_size
    gpus_per_node num_postprocess_workers
"""
_SWITCH = "trust_remote_code fail_fast_on_attention_window_too_large enable_chunked_prefill grpc"
#: The file's names of what flags call otherwise.
_SIZES = {"tp": "tensor_parallel_size", "pp": "pipeline_parallel_size", "cp": "context_parallel_size"}


class ConfigError(ValueError):
    """Settings that the engine refuses after parsing; it ends with 1."""


@dataclass(frozen=True)
class Transceiver:
    """`cache_transceiver_config`: how KV caches travel between engines; an offer is kept for `seconds`."""

    backend: str
    seconds: float


@dataclass(frozen=True)
class Config:
    """One engine. `openengine`: its gRPC server speaks OpenEngine; else SMG, of which the simulator knows no method."""

    model: str
    host: str
    port: int
    openengine: bool
    role: Role
    tp: int
    pp: int
    cp: int
    max_seq_len: int | None
    block_size: int
    total_tokens: int
    block_reuse: bool
    transceiver: Transceiver | None
    log_level: str

    @property
    def world(self) -> int:
        """How many MPI ranks the engine has."""
        return self.tp * self.pp * self.cp


def read_config(argv: Sequence[str]) -> Config:
    """The settings in `argv`. Raises SystemExit(2) for bad usage, ConfigError for what the engine refuses."""
    args = _parser().parse_args(argv)
    if not args.grpc:
        raise ConfigError("without --grpc this is an HTTP server, which is not simulated")
    file = _read_file(args.extra_llm_api_options)
    sizes = {short: _count(file.get(name, getattr(args, f"{short}_size") or 1), name) for short, name in _SIZES.items()}
    role = _role(args.server_role)
    cache = file.get("kv_cache_config") or {}
    config = Config(
        model=args.model,
        host=args.host or "localhost",
        port=DEFAULT_PORT if args.port is None else args.port,
        openengine=args.grpc_protocol == "openengine",
        role=role,
        **sizes,
        max_seq_len=file.get("max_seq_len", args.max_seq_len),
        block_size=_count(cache.get("tokens_per_block", DEFAULT_BLOCK), "tokens_per_block"),
        total_tokens=_count(cache.get("max_tokens") or DEFAULT_TOTAL_TOKENS, "max_tokens"),
        block_reuse=bool(cache.get("enable_block_reuse", True)),
        transceiver=_transceiver(file.get("cache_transceiver_config")),
        log_level=(args.log_level or "info").upper(),
    )
    if role != "agg" and config.transceiver is None:
        raise ConfigError(f"server role {args.server_role} needs cache_transceiver_config in the engine's file")
    return config


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="serve", usage="serve [OPTIONS] MODEL", allow_abbrev=False)
    parser.add_argument("model")
    for name in _TEXT.split():
        parser.add_argument(f"--{name}")
    for name in _NUMBER.split():
        parser.add_argument(f"--{name}", type=int)
    for name in _SWITCH.split():
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--kv_cache_free_gpu_memory_fraction", type=float)
    parser.add_argument("--grpc-protocol", choices=("smg", "openengine"), default="smg")
    parser.add_argument("--extra_llm_api_options", "--config")
    return parser


def _read_file(path: str | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8")) or {}
    except OSError as error:
        raise ConfigError(f"--extra_llm_api_options {path}: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"--extra_llm_api_options {path}: not YAML: {error}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"--extra_llm_api_options {path}: not a mapping")
    return content


def _count(value: object, name: str) -> int:
    if type(value) is not int or value < 1:
        raise ConfigError(f"{name} must be a whole number of at least 1, not {value!r}")
    return value


def _role(text: str | None) -> Role:
    if text is None:
        return "agg"
    if text.upper() not in ROLES:
        raise ConfigError(f"OpenEngine does not support TensorRT-LLM server role {text!r}")
    return ROLES[text.upper()]


def _transceiver(content: Any) -> Transceiver | None:
    if content is None:
        return None
    if not isinstance(content, dict) or not content.get("backend"):
        raise ConfigError(f"cache_transceiver_config must be a mapping with a backend, not {content!r}")
    return Transceiver(
        str(content["backend"]), content.get("kv_transfer_timeout_ms", 0) / 1000 or DEFAULT_TRANSFER_SECONDS
    )
