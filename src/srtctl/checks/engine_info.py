"""What an engine process says of itself: SGLang's server info, over HTTP or its native gRPC; vLLM's; or OpenEngine's.

A follower answers `GetServerInfo` over gRPC only. As a command, `python3 -m srtctl.checks.engine_info HOST GRPC_PORT`,
it prints the facts in one line: node.sh asks so when a sidecar has died and its engine still lives.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from srtctl.checks import openengine, vllm_info
from srtctl.checks.grpc_call import UnimplementedError, ask
from srtctl.checks.net import NetError, fetch
from srtctl.checks.protobuf import fields, text
from srtctl.checks.stack import dynamo_version

_METHOD = "/sglang.runtime.v1.SglangService/GetServerInfo"
_SECONDS = 3.0
_JSON_INFO = 1
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
    answer = ask(host, port, _METHOD, timeout)
    try:
        return _json_info(answer)
    except ValueError as error:
        raise NetError(f"{host}:{port} GetServerInfo: not what SGLang answers: {error}") from None


def _json_info(message: bytes) -> dict[str, Any]:
    """Field 1, a string, of the response. Raises ValueError."""
    found = dict(fields(message))
    if _JSON_INFO not in found:
        raise ValueError("field 1 is missing")
    info = json.loads(text(found[_JSON_INFO]))
    if not isinstance(info, dict):
        raise ValueError("json_info is no object")
    return info


def described(host: str, port: int, timeout: float = _SECONDS) -> str:
    """The facts of the engine at that gRPC port, whichever of the three protocols it speaks. Raises NetError."""
    with contextlib.suppress(UnimplementedError):
        return facts(over_grpc(host, port, timeout))
    with contextlib.suppress(UnimplementedError):
        return vllm_info.facts(host, port, timeout)
    return openengine.ask(host, port, timeout).facts()


def facts(info: Mapping[str, Any]) -> str:
    """`SGLang 0.5.21: dp_size=1, attn_dp_size=2, nnodes=2, node_rank=1, kv_event_sources of ranks [1]`."""
    said = [f"{name}={info[name]}" for name in _SIZES if info.get(name) is not None]
    sources = info.get("kv_event_sources")
    said.append("no kv_event_sources" if sources is None else f"kv_event_sources of ranks {_ranks(sources)}")
    return f"SGLang {info.get('version', 'of unknown version')}: {', '.join(said)}"


def _ranks(sources: Any) -> list[Any]:
    return [source.get("dp_rank") for source in sources if isinstance(source, dict)]


def main(argv: Sequence[str]) -> int:
    """Print the facts of the engine at HOST GRPC_PORT, or nothing; returns 0 if it answered, else 1."""
    host, port = argv
    try:
        print(f"{described(host, int(port))}; {dynamo_version()}")
    except NetError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
