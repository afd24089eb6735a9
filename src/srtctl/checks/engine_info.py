"""What an engine process says of itself: SGLang's server info, over HTTP or over its native gRPC.

A follower answers `GetServerInfo` over gRPC only. As a command, `python3 -m srtctl.checks.engine_info HOST GRPC_PORT`,
it prints the facts in one line: node.sh asks so when a sidecar has died and its engine still lives.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

from srtctl.checks.net import NetError, fetch

_METHOD = "/sglang.runtime.v1.SglangService/GetServerInfo"
_SECONDS = 3.0
_STRING_FIELD_1 = 0x0A  # protobuf: field 1, length-delimited
_SIZES = ("dp_size", "attn_dp_size", "nnodes", "node_rank")


def over_http(host: str, port: int, timeout: float = _SECONDS) -> dict[str, Any]:
    """The answer of `/get_server_info`. Raises NetError."""
    response = fetch(f"http://{host}:{port}/get_server_info", timeout=timeout)
    info = response.json()
    if response.status != 200 or not isinstance(info, dict):
        raise NetError(f"{host}:{port} /get_server_info: HTTP {response.status}")
    return info


def over_grpc(host: str, port: int, timeout: float = _SECONDS) -> dict[str, Any]:
    """The `json_info` of GetServerInfo. Raises NetError, also where this Python has no grpc."""
    try:
        grpc = importlib.import_module("grpc")
    except ImportError:
        raise NetError("this Python has no module 'grpc'") from None
    with grpc.insecure_channel(f"{host}:{port}", options=[("grpc.enable_http_proxy", 0)]) as channel:
        ask = channel.unary_unary(_METHOD, request_serializer=bytes, response_deserializer=bytes)
        try:
            return _json_info(ask(b"", timeout=timeout))
        except grpc.RpcError as error:
            raise NetError(f"{host}:{port} GetServerInfo: {error.code().name}") from None
        except ValueError as error:
            raise NetError(f"{host}:{port} GetServerInfo: not what SGLang answers: {error}") from None


def _json_info(message: bytes) -> dict[str, Any]:
    """Field 1, a string, of the response; written by hand so that no generated code is needed. Raises ValueError."""
    if not message or message[0] != _STRING_FIELD_1:
        raise ValueError("field 1 is missing")
    size, shift, at = 0, 0, 1
    while True:
        byte = message[at]
        size, shift, at = size | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            break
    info = json.loads(message[at : at + size])
    if not isinstance(info, dict):
        raise ValueError("json_info is no object")
    return info


def facts(info: Mapping[str, Any]) -> str:
    """`SGLang 0.5.21: dp_size=1, attn_dp_size=2, nnodes=2, node_rank=1, kv_event_sources of ranks [1]`."""
    said = [f"{name}={info[name]}" for name in _SIZES if info.get(name) is not None]
    sources = info.get("kv_event_sources")
    said.append("no kv_event_sources" if sources is None else f"kv_event_sources of ranks {_ranks(sources)}")
    return f"SGLang {info.get('version', 'of unknown version')}: {', '.join(said)}"


def _ranks(sources: Any) -> list[Any]:
    return [source.get("dp_rank") for source in sources if isinstance(source, dict)]


def dynamo_version() -> str:
    """`Dynamo 1.6.1`, as installed for this Python."""
    try:
        return f"Dynamo {metadata.version('ai-dynamo')}"
    except metadata.PackageNotFoundError:
        return "Dynamo of unknown version"


def main(argv: Sequence[str]) -> int:
    """Print the facts of the engine at HOST GRPC_PORT, or nothing; returns 0 if it answered, else 1."""
    host, port = argv
    try:
        print(f"{facts(over_grpc(host, int(port)))}; {dynamo_version()}")
    except NetError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
