"""The settings of one simulated vLLM process, from its command line and environment."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from srtctl.sim.address import Address
from srtctl.sim.openengine.engine import Listen, listen
from srtctl.sim.rendezvous import Membership
from srtctl.sim.vllm import flags
from srtctl.sim.vllm.topology import Topology, TopologyError

DEFAULT_KV_BLOCKS = 4096
DEFAULT_BATCHED_TOKENS = 8192
DEFAULT_SEQUENCES = 256
DEFAULT_GROUP_TIMEOUT = 300.0
NATIVE_VARIABLE = "VLLM_USE_RUST_FRONTEND"
_EVENT_KEYS = {
    "enable_kv_cache_events", "publisher", "endpoint", "replay_endpoint", "buffer_steps", "hwm", "max_queue_size", "topic",
}  # fmt: skip
_ROLES = ("kv_producer", "kv_consumer", "kv_both")
_T = TypeVar("_T")


class ConfigError(ValueError):
    """Settings that the engine refuses after parsing; it ends with 1."""


@dataclass(frozen=True)
class KvEvents:
    """`--kv-events-config` with a ZMQ publisher: DP rank r uses port `port` + r; with port 0 each rank has any port."""

    topic: str
    host: str
    port: int

    def endpoint(self, dp_rank: int) -> str:
        """The address that the publisher of a rank uses."""
        return f"tcp://{self.host}:{self.port + dp_rank if self.port else '*'}"


@dataclass(frozen=True)
class Nixl:
    """`NixlConnector`: the side channel of DP rank r listens on port `port` + r times the TP size.

    `role` is its kv_role, which alone tells a prefill engine from a decode engine.
    """

    address: Address
    role: str

    def address_of(self, dp_rank: int, tp: int) -> Address:
        """Where a rank hands over its KV cache."""
        return Address(self.address.host, self.address.port + dp_rank * tp)


@dataclass(frozen=True)
class Config:
    """One process of an engine. `grpc_port` None: no native server; `headless`: no server at all."""

    model: str
    served_model_names: tuple[str, ...]
    host: str
    port: int
    grpc_port: int | None
    openengine: Listen | None
    headless: bool
    hybrid: bool
    topology: Topology
    node_rank: int
    meeting_point: Address | None
    meeting_flag: str
    block_size: int
    kv_blocks: int
    max_sequences: int
    max_batched_tokens: int
    max_model_len: int | None
    stream_interval: int
    prefix_cache: bool
    kv_events: KvEvents | None
    nixl: Nixl | None
    lora: bool
    multimodal: bool

    @property
    def local_ranks(self) -> tuple[int, ...]:
        """The DP ranks that run on this node."""
        return self.topology.ranks_on(self.node_rank)

    @property
    def served_ranks(self) -> tuple[int, ...]:
        """The DP ranks whose requests come in here: with hybrid load balancing this node's, else the engine's."""
        if self.headless:
            return ()
        return self.local_ranks if self.hybrid else tuple(range(self.topology.dp))

    @property
    def membership(self) -> Membership:
        """Its place in the engine's group."""
        sizes = dataclasses.asdict(self.topology)
        return Membership(self.node_rank, self.topology.nnodes, self.meeting_point, sizes, self.meeting_flag)


def read_config(argv: Sequence[str], env: Mapping[str, str]) -> Config:
    """The settings in `argv`, which follows `serve`. Raises SystemExit(2) for bad usage, ConfigError for what the
    engine refuses."""
    args = flags.parse(argv, native=env.get(NATIVE_VARIABLE) == "1")
    model = args.model_tag or args.model
    if model is None:
        raise ConfigError("no model was given: vllm serve MODEL")
    _check(args)
    topology = _topology(args)
    try:
        topology.check()
    except TopologyError as error:
        raise ConfigError(str(error)) from None
    node_rank = _node_rank(args, topology)
    point, flag = _meeting_point(args, topology)
    return Config(
        model=model,
        served_model_names=tuple(args.served_model_name or (model,)),
        host=args.host or "0.0.0.0",
        port=_or(args.port, 8000),
        grpc_port=getattr(args, "grpc_port", None),
        openengine=listen(getattr(args, "openengine_host", None), getattr(args, "openengine_port", None), None),
        headless=args.headless,
        hybrid=args.data_parallel_hybrid_lb,
        topology=topology,
        node_rank=node_rank,
        meeting_point=point,
        meeting_flag=flag,
        block_size=_or(args.block_size, 16),
        kv_blocks=_or(args.num_gpu_blocks_override, DEFAULT_KV_BLOCKS),
        max_sequences=_or(args.max_num_seqs, DEFAULT_SEQUENCES),
        max_batched_tokens=_or(args.max_num_batched_tokens, DEFAULT_BATCHED_TOKENS),
        max_model_len=args.max_model_len,
        stream_interval=max(_or(args.stream_interval, 1), 1),
        prefix_cache=args.enable_prefix_caching is not False,
        kv_events=_kv_events(args.kv_events_config) if args.kv_events_config else None,
        nixl=_nixl(args.kv_transfer_config, env) if args.kv_transfer_config else None,
        lora=bool(args.enable_lora),
        multimodal=args.limit_mm_per_prompt is not None,
    )


def _or(value: _T | None, default: _T) -> _T:
    return default if value is None else value


def _check(args: argparse.Namespace) -> None:
    """vLLM's own refusals of flags that contradict each other."""
    if args.headless and _or(args.api_server_count, 0) > 0:
        raise ConfigError("--api-server-count=N cannot be used with --headless (no API servers are started)")
    if args.headless and args.data_parallel_hybrid_lb:
        raise ConfigError("--data-parallel-hybrid-lb is not applicable in headless mode")
    if args.data_parallel_external_lb or args.data_parallel_rank is not None or args.grpc:
        raise ConfigError("external load balancing and the Python gRPC server are not simulated")
    if _or(args.nnodes, 1) > 1 and args.distributed_executor_backend != "mp":
        raise ConfigError("nnodes > 1 can only be set when distributed executor backend is mp")
    if _or(args.node_rank, 0) > 0 and not args.headless:
        raise ConfigError("node_rank > 0 serves no requests: it needs --headless")
    if args.data_parallel_hybrid_lb and args.data_parallel_size_local is None:
        raise ConfigError("with --data-parallel-hybrid-lb, --data-parallel-size-local must be set")


def _topology(args: argparse.Namespace) -> Topology:
    dp = _or(args.data_parallel_size, 1)
    return Topology(
        tp=_or(args.tensor_parallel_size, 1),
        pp=_or(args.pipeline_parallel_size, 1),
        pcp=_or(args.prefill_context_parallel_size, 1),
        dp=dp,
        dp_local=_or(args.data_parallel_size_local, dp),
        replica_nodes=_or(args.nnodes, 1),
    )


def _node_rank(args: argparse.Namespace, topology: Topology) -> int:
    if topology.replica_nodes > 1:
        node_rank: int = _or(args.node_rank, 0)
    else:
        start: int = _or(args.data_parallel_start_rank, 0)
        if start % topology.dp_local:
            raise ConfigError(f"data_parallel_start_rank {start} is no multiple of {topology.dp_local} ranks a node")
        node_rank = start // topology.dp_local
    if not 0 <= node_rank < topology.nnodes:
        raise ConfigError(f"node {node_rank} of {topology.nnodes}: ranks and sizes do not fit together")
    return node_rank


def _meeting_point(args: argparse.Namespace, topology: Topology) -> tuple[Address | None, str]:
    if topology.nnodes == 1:
        return None, ""
    host, port, flag = (
        (args.master_addr, args.master_port, "--master-addr")
        if topology.replica_nodes > 1
        else (args.data_parallel_address, args.data_parallel_rpc_port, "--data-parallel-address")
    )
    if host is None or port is None:
        raise ConfigError(f"several nodes need {flag} and the port that belongs to it")
    return Address(host, port), flag


def _kv_events(text: str) -> KvEvents | None:
    content = _object(text, "--kv-events-config")
    if unknown := sorted(set(content) - _EVENT_KEYS):
        raise ConfigError(f"--kv-events-config: unexpected keyword argument {unknown[0]!r}")
    publisher = content.get("publisher", "zmq" if content.get("enable_kv_cache_events") else "null")
    if publisher not in ("null", "zmq"):
        raise ConfigError(f"--kv-events-config: publisher must be 'null' or 'zmq', not {publisher!r}")
    if publisher == "null" or not content.get("enable_kv_cache_events", False):
        return None
    endpoint = str(content.get("endpoint", "tcp://*:5557"))
    scheme, _, rest = endpoint.partition("://")
    host, _, port = rest.rpartition(":")
    if scheme != "tcp" or not host or not port.isdecimal():
        raise ConfigError(f"Invalid endpoint {endpoint!r}: must be tcp://HOST:PORT")
    return KvEvents(str(content.get("topic", "")), host, int(port))


def _nixl(text: str, env: Mapping[str, str]) -> Nixl | None:
    content = _object(text, "--kv-transfer-config")
    connector, role = content.get("kv_connector"), content.get("kv_role")
    if connector is None or role not in _ROLES:
        raise ConfigError(f"--kv-transfer-config needs kv_connector, and kv_role as one of {', '.join(_ROLES)}")
    if connector != "NixlConnector":
        raise ConfigError(f"Unsupported connector type: {connector}; the simulated engine has NixlConnector")
    port = env.get("VLLM_NIXL_SIDE_CHANNEL_PORT", "5600")
    if not port.isdecimal():
        raise ConfigError(f"VLLM_NIXL_SIDE_CHANNEL_PORT is no port: {port!r}")
    return Nixl(Address(env.get("VLLM_NIXL_SIDE_CHANNEL_HOST", "localhost"), int(port)), role)


def _object(text: str, flag: str) -> dict[str, Any]:
    content = json.loads(text)
    if not isinstance(content, dict):
        raise ConfigError(f"{flag} {text!r} is not a JSON object")
    return content
