"""The settings of one simulated SGLang process, from its command line."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from srtctl.sim.address import ANY_HOST, Address
from srtctl.sim.openengine.engine import Listen, listen
from srtctl.sim.rendezvous import Membership
from srtctl.sim.sglang import flags
from srtctl.sim.sglang.topology import Topology, TopologyError

DEFAULT_TOTAL_TOKENS = 65536
DEFAULT_RUNNING_REQUESTS = 256
DEFAULT_PREFILL_TOKENS = 16384
DEFAULT_BOOTSTRAP_PORT = 8998
DEFAULT_DIST_TIMEOUT = 300.0
_T = TypeVar("_T")


class ConfigError(ValueError):
    """Settings that the engine refuses after parsing; it ends with 1."""


@dataclass(frozen=True)
class KvEvents:
    """`--kv-events-config` with a ZMQ publisher: DP rank r uses port `port` + r."""

    topic: str
    host: str
    port: int

    def endpoint(self, dp_rank: int) -> str:
        """The address that the publisher of a rank uses."""
        return f"tcp://{self.host}:{self.port + dp_rank}"

    def local_endpoint(self, dp_rank: int) -> str:
        """The address at which a subscriber on the same node finds that publisher."""
        host = "127.0.0.1" if self.host in ANY_HOST else self.host
        return f"tcp://{host}:{self.port + dp_rank}"


@dataclass(frozen=True)
class Config:
    """One process of an engine. Ports are None where the engine was not given one."""

    model_path: str
    served_model_name: str
    host: str
    port: int
    grpc_port: int | None
    openengine: Listen | None
    nccl_port: int | None
    topology: Topology
    node_rank: int
    dist_init: Address | None
    dist_timeout: float
    page_size: int
    max_total_tokens: int
    max_running_requests: int
    max_prefill_tokens: int
    context_length: int | None
    stream_interval: int
    prefix_cache: bool
    incremental_streaming: bool
    disaggregation_mode: str
    bootstrap_port: int
    follow_bootstrap_room: bool
    kv_events: KvEvents | None
    transfer_backend: str
    lora: bool
    multimodal: bool
    log_level: str

    @property
    def leader(self) -> bool:
        """Whether this is node rank 0, which executes every request."""
        return self.node_rank == 0

    @property
    def local_ranks(self) -> tuple[int, ...]:
        """The DP ranks that live on this node."""
        return self.topology.ranks_on(self.node_rank)

    @property
    def membership(self) -> Membership:
        """Its place in the engine's group."""
        sizes = dataclasses.asdict(self.topology)
        return Membership(self.node_rank, self.topology.nnodes, self.dist_init, sizes, "--dist-init-addr")


def read_config(argv: Sequence[str]) -> Config:
    """The settings in `argv`. Raises SystemExit(2) for bad usage, ConfigError for what the engine refuses."""
    args = flags.parse(argv)
    config = Config(
        model_path=args.model_path,
        served_model_name=args.served_model_name or args.model_path,
        host=args.host or "127.0.0.1",
        port=_or(args.port, 30000),
        grpc_port=args.grpc_port,
        openengine=listen(args.openengine_host, args.openengine_port, args.openengine_advertise_host),
        nccl_port=args.nccl_port,
        topology=_topology(args),
        node_rank=_or(args.node_rank, 0),
        dist_init=_address(args.dist_init_addr) if args.dist_init_addr else None,
        dist_timeout=float(_or(args.dist_timeout, DEFAULT_DIST_TIMEOUT)),
        page_size=_or(args.page_size, 1),
        max_total_tokens=_or(args.max_total_tokens, DEFAULT_TOTAL_TOKENS),
        max_running_requests=_or(args.max_running_requests, DEFAULT_RUNNING_REQUESTS),
        max_prefill_tokens=_or(args.max_prefill_tokens, DEFAULT_PREFILL_TOKENS),
        context_length=args.context_length,
        stream_interval=max(_or(args.stream_interval, 1), 1),
        prefix_cache=not args.disable_radix_cache,
        incremental_streaming=args.incremental_streaming_output,
        disaggregation_mode=args.disaggregation_mode or "null",
        bootstrap_port=_or(args.disaggregation_bootstrap_port, DEFAULT_BOOTSTRAP_PORT),
        # What "auto", the default, means for prefill; the room then decides the DP rank
        follow_bootstrap_room=(args.load_balance_method or "auto") in ("auto", "follow_bootstrap_room"),
        kv_events=_kv_events(args.kv_events_config) if args.kv_events_config else None,
        transfer_backend=args.disaggregation_transfer_backend or "mooncake",
        lora=args.enable_lora or bool(args.lora_paths),
        multimodal=args.enable_multimodal,
        log_level=(args.log_level or "info").upper(),
    )
    _check(config)
    return config


def _or(value: _T | None, default: _T) -> _T:
    return default if value is None else value


def _topology(args: argparse.Namespace) -> Topology:
    dp = _or(args.data_parallel_size, 1)
    return Topology(
        nnodes=_or(args.nnodes, 1),
        tp=_or(args.tensor_parallel_size, 1),
        dp=dp,
        pp=_or(args.pipeline_parallel_size, 1),
        dp_attention=args.enable_dp_attention and dp > 1,  # the engine switches it off for dp_size 1
    )


def _check(config: Config) -> None:
    try:
        config.topology.check()
    except TopologyError as error:
        raise ConfigError(str(error)) from None
    nnodes = config.topology.nnodes
    if not 0 <= config.node_rank < nnodes:
        raise ConfigError(f"node_rank {config.node_rank} is outside nnodes {nnodes}")
    if nnodes > 1 and config.dist_init is None:
        raise ConfigError("please provide --dist-init-addr as host:port of head node")
    if config.page_size < 1:
        raise ConfigError(f"page_size must be at least 1, not {config.page_size}")


def _address(text: str) -> Address:
    host, colon, port = text.removeprefix("tcp://").rpartition(":")
    if not (colon and host and port.isdecimal()):
        raise ConfigError(f"--dist-init-addr {text!r} is not host:port")
    return Address(host.strip("[]"), int(port))


def _kv_events(text: str) -> KvEvents | None:
    content = json.loads(text)
    if not isinstance(content, dict):
        raise ConfigError(f"--kv-events-config {text!r} is not a JSON object")
    publisher = content.get("publisher", "null")
    if publisher == "null":
        return None
    if publisher != "zmq":
        raise ConfigError(f"Unknown event publisher {publisher!r} in --kv-events-config; known: null, zmq")
    endpoint = content.get("endpoint", "tcp://*:5557")
    scheme, _, rest = str(endpoint).partition("://")
    host, _, port = rest.rpartition(":")
    if scheme != "tcp" or not host or not port.isdecimal():
        raise ConfigError(f"Invalid endpoint {endpoint!r} in --kv-events-config: must be tcp://HOST:PORT")
    return KvEvents(topic=str(content.get("topic", "")), host=host, port=int(port))
