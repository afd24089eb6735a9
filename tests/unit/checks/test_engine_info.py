from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager

import grpc
import pytest

from srtctl.checks import engine_info
from srtctl.checks.engine_info import facts, over_grpc, over_http
from srtctl.checks.net import NetError

from .scenario import answering

INFO = {
    "version": "0.5.21",
    "dp_size": 1,
    "attn_dp_size": 2,
    "nnodes": 2,
    "node_rank": 1,
    "kv_event_sources": [{"dp_rank": 1}],
    "padding": "x" * 300,  # a length of more than one byte
}
LINE = "SGLang 0.5.21: dp_size=1, attn_dp_size=2, nnodes=2, node_rank=1, kv_event_sources of ranks [1]"


def encoded(text: str) -> bytes:
    """A protobuf message with `text` in field 1."""
    data, size, prefix = text.encode(), len(text.encode()), b"\x0a"
    while size >= 0x80:
        prefix, size = prefix + bytes([size & 0x7F | 0x80]), size >> 7
    return prefix + bytes([size]) + data


@contextmanager
def grpc_engine(response: bytes) -> Iterator[int]:
    """A gRPC server on loopback that answers GetServerInfo with these bytes."""
    server = grpc.server(futures.ThreadPoolExecutor(1))
    handler = grpc.unary_unary_rpc_method_handler(
        lambda _request, _context: response, request_deserializer=bytes, response_serializer=bytes
    )
    service = grpc.method_handlers_generic_handler("sglang.runtime.v1.SglangService", {"GetServerInfo": handler})
    server.add_generic_rpc_handlers((service,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield port
    finally:
        server.stop(None).wait()


def test_facts_name_the_version_the_sizes_and_the_sources() -> None:
    assert facts(INFO) == LINE
    assert facts({}) == "SGLang of unknown version: no kv_event_sources"


def test_over_grpc() -> None:
    with grpc_engine(encoded(json.dumps(INFO))) as port:
        assert over_grpc("127.0.0.1", port) == INFO


@pytest.mark.parametrize("response", [b"", b"\x12\x00", encoded("[]"), encoded("{")])
def test_over_grpc_from_something_else(response: bytes) -> None:
    with grpc_engine(response) as port, pytest.raises(NetError, match="not what SGLang answers"):
        over_grpc("127.0.0.1", port)


def test_over_http() -> None:
    with answering(200, json.dumps(INFO)) as url:
        assert over_http("127.0.0.1", int(url.rpartition(":")[2])) == INFO
    with answering(404, "{}") as url, pytest.raises(NetError, match="HTTP 404"):
        over_http("127.0.0.1", int(url.rpartition(":")[2]))


def test_the_command_prints_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_info, "dynamo_version", lambda: "Dynamo 1.6.1")
    with grpc_engine(encoded(json.dumps(INFO))) as port:
        assert engine_info.main(["127.0.0.1", str(port)]) == 0
    assert capsys.readouterr().out == f"{LINE}; Dynamo 1.6.1\n"


def test_the_command_is_silent_where_nobody_answers(capsys: pytest.CaptureFixture[str]) -> None:
    with grpc_engine(b"") as port:
        pass
    assert engine_info.main(["127.0.0.1", str(port)]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "UNAVAILABLE" in printed.err
