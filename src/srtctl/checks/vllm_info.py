"""What a vLLM engine says of itself over its native gRPC, `vllm.Control`: its sizes, and where it publishes KV events."""

from __future__ import annotations

from dataclasses import dataclass

from srtctl.checks.grpc_call import UnimplementedError, ask
from srtctl.checks.net import NetError
from srtctl.checks.protobuf import fields, text

_SECONDS = 3.0
_VERSION, _PARALLELISM = 1, 4  # of ServerInfo
_SIZES = {3: "data_parallel_size", 4: "data_parallel_rank", 7: "data_parallel_size_local", 1: "tensor_parallel_size"}
_CONTROL = b"vllm.Control"
_HEALTH_REQUEST = bytes([0x0A, len(_CONTROL)]) + _CONTROL  # field 1, text
_STATUS, _SERVING = 1, 1  # of HealthCheckResponse
_SOURCE = 1  # of GetKvEventSourcesResponse
_TRANSPORT, _ENDPOINT, _RANK = 1, 2, 5  # of KvEventSource


@dataclass(frozen=True)
class KvSource:
    """One published KV event source; `dp_rank` is None where the engine does not say."""

    transport: str
    endpoint: str
    dp_rank: int | None


def kv_sources(host: str, port: int, timeout: float = _SECONDS) -> tuple[KvSource, ...]:
    """The answer of GetKvEventSources. Raises NetError."""
    answer = ask(host, port, "/vllm.Control/GetKvEventSources", timeout)
    try:
        return tuple(_source(value) for number, value in fields(answer) if number == _SOURCE)
    except ValueError as error:
        raise NetError(f"{host}:{port} GetKvEventSources: not what vLLM answers: {error}") from None


def facts(host: str, port: int, timeout: float = _SECONDS) -> str:
    """`vLLM 0.21.0: data_parallel_size=2, data_parallel_rank=1, …, KV event sources of ranks [1]`, and whether it says that it
    is not healthy. Raises NetError."""
    answer = ask(host, port, "/vllm.Control/GetServerInfo", timeout)
    try:
        server = dict(fields(answer))
        sizes = dict(fields(_message(server.get(_PARALLELISM, b""))))
        said = [f"{name}={_number(sizes.get(number, 0))}" for number, name in _SIZES.items()]
        version = text(server.get(_VERSION, b"")) or "of unknown version"
    except ValueError as error:
        raise NetError(f"{host}:{port} GetServerInfo: not what vLLM answers: {error}") from None
    try:
        ranks = str([source.dp_rank for source in kv_sources(host, port, timeout)])
    except UnimplementedError:
        ranks = "it does not tell (no GetKvEventSources)"
    unwell = "" if _serving(host, port, timeout) else ", not SERVING"
    return f"vLLM {version}: {', '.join(said)}, KV event sources of ranks {ranks}{unwell}"


def _serving(host: str, port: int, timeout: float) -> bool:
    """What the standard health service says, which the sidecar asks; true where there is none."""
    try:
        answer = ask(host, port, "/grpc.health.v1.Health/Check", timeout, _HEALTH_REQUEST)
        return dict(fields(answer)).get(_STATUS) == _SERVING
    except (NetError, ValueError):
        return True


def _source(value: int | bytes) -> KvSource:
    found = dict(fields(_message(value)))
    rank = found.get(_RANK)
    return KvSource(
        text(found.get(_TRANSPORT, b"")), text(found.get(_ENDPOINT, b"")), rank if isinstance(rank, int) else None
    )


def _message(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number where a message belongs")
    return value


def _number(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise ValueError("text where a number belongs")
    return value
