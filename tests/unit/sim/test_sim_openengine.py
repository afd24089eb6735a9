"""The OpenEngine server over an engine of the test's own: admission, discovery, errors. tests/e2e/test_openengine.py has the
simulated engines."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from engine_process import free_ports

from srtctl.sim.errors import GroupError, InternalError, RequestError, TransferError, UnavailableError
from srtctl.sim.faults import Faults
from srtctl.sim.openengine.admission import Admission
from srtctl.sim.openengine.engine import (
    EventSource,
    Facts,
    FailedError,
    Handoff,
    Ready,
    RejectedError,
    Step,
    Work,
    listen,
    translated,
)
from srtctl.sim.openengine.server import OpenEngineServer
from srtctl.sim.process import Stopped
from tests.openengine_client import Client

HEALTHY = Faults()
FACTS = Facts("sglang", "1", "agg", "/models/m", "mine", 100, aliases=("alias",), dp=2, block_size=16)


class Engine:
    """Says two tokens, then waits to be released; fails as it is told."""

    def __init__(self, facts: Facts = FACTS, error: Exception | None = None) -> None:
        self.facts = facts
        self.error = error
        self.released = threading.Event()
        self.aborted: list[str] = []
        self.seen: list[Work] = []

    def generate(self, work: Work) -> Iterator[Step | Ready]:
        self.seen.append(work)
        if self.error:
            raise self.error
        yield Step((7, 8), len(work.tokens), 0, 2)
        self.released.wait(20)
        yield Step((9,), len(work.tokens), 0, 3, "cancelled" if self.aborted else "length")

    def abort(self, request_id: str) -> None:
        self.aborted.append(request_id)
        self.released.set()

    def open_sessions(self) -> int:
        return 0


@contextmanager
def serving(engine: Engine, faults: Faults = HEALTHY) -> Iterator[Client]:
    port = free_ports()
    with (
        OpenEngineServer("127.0.0.1", port, engine, faults, lambda: True),
        Client(f"127.0.0.1:{port}") as client,
    ):
        yield client
        engine.released.set()


def status(stream: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as found:
        list(stream)
    return found.value.code(), str(found.value.details())


def test_admission_knows_what_runs_what_has_ended_and_nothing_else() -> None:
    admission = Admission()
    with admission.admit("a"):
        assert (admission.state("a"), admission.state("b"), admission.running()) == ("running", "", ["a"])
        with pytest.raises(RejectedError, match="running already"), admission.admit("a"):
            pass
        admission.start_drain()
        with pytest.raises(RejectedError, match="draining") as refused, admission.admit("b"):
            pass
        assert refused.value.status == "UNAVAILABLE"
        assert not admission.wait_empty(0)
    assert admission.state("a") == "ended"
    assert admission.wait_empty(0)
    assert not admission.wait_empty(0, lambda: False)


def test_discovery() -> None:
    sources = (EventSource(0, "10.0.0.1", 5200, "kv"), EventSource(1, "10.0.0.1", 5201, "kv"))
    handoff = Handoff("mooncake", "sglang.bootstrap.v1", "tcp", "10.0.0.1", 8998)
    facts = Facts("sglang", "1", "prefill", "/models/m", "mine", 100, dp=2, handoff=handoff, sources=sources, lora=True)
    with serving(Engine(facts)) as client:
        server = client.call("GetServerInfo")
        assert (server.engine_name, server.engine_role, server.schema_revision) == ("sglang", 2, 1)
        assert (server.parallelism.data_parallel_size, list(server.supported_models)) == (2, ["mine"])
        connector = server.kv_connector
        assert (connector.enabled, connector.handoff_profile) == (True, "sglang.bootstrap.v1")
        assert [(e.host, e.port) for e in connector.local_endpoints] == [("10.0.0.1", 8998)]
        model = client.call("GetModelInfo", model="/models/m")
        assert (model.served_model_name, model.supports_lora, model.supports_multimodal) == ("mine", True, False)
        found = client.call("GetKvEventSources", data_parallel_ranks=[1]).sources
        assert [(s.data_parallel_rank, s.endpoint_addr.port, s.transport) for s in found] == [(1, 5201, "zmq")]
        with pytest.raises(grpc.RpcError) as unknown:
            client.call("GetModelInfo", model="other")
        assert unknown.value.code() is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize(
    ("lie", "rpc", "field", "value"),
    [
        ("revision:9", "GetServerInfo", "schema_revision", 9),
        ("minimum_client:2", "GetServerInfo", "minimum_client_revision", 2),
        ("role:decode", "GetServerInfo", "engine_role", 3),
        ("served_name:x", "GetModelInfo", "served_model_name", "x"),
        ("lora:true", "GetModelInfo", "supports_lora", True),
    ],
)
def test_the_fault_falsifies_one_fact(lie: str, rpc: str, field: str, value: object) -> None:
    with serving(Engine(), Faults(openengine=lie)) as client:
        assert getattr(client.call(rpc), field) == value


def test_an_unknown_fact_cannot_be_falsified() -> None:
    with pytest.raises(ValueError, match="known: revision"):
        OpenEngineServer("127.0.0.1", free_ports(), Engine(), Faults(openengine="speed:9"), lambda: True)


BAD = [
    ({"model": "m", "lora_name": "a"}, "UNIMPLEMENTED", "LoRA"),
    ({"media": [{"url": "x"}]}, "UNIMPLEMENTED", "media"),
    ({"context_only": True}, "FAILED_PRECONDITION", "request for prefill, this engine is agg"),
]


@pytest.mark.parametrize(("fields", "code", "words"), BAD, ids=[row[2] for row in BAD])
def test_what_the_engine_has_not_is_refused_before_it_is_asked(fields: dict[str, Any], code: str, words: str) -> None:
    engine = Engine()
    with serving(engine) as client:
        found, why = status(client.generate("r", 4, 2, **fields))
    assert (found, engine.seen) == (grpc.StatusCode[code], [])
    assert words in why


def test_errors_are_a_status_before_and_an_event_after_acceptance() -> None:
    with serving(Engine(error=RejectedError("too long"))) as client:
        assert status(client.generate("r", 4, 2)) == (grpc.StatusCode.INVALID_ARGUMENT, "too long")
    with serving(Engine(error=FailedError("KV_TRANSFER_FAILED", "gone"))) as client:
        [answer] = client.generate("r", 4, 2)
        assert (answer.error.code, answer.error.message) == (9, "gone")


def test_the_same_id_runs_once_and_all_can_be_aborted() -> None:
    engine = Engine()
    with serving(engine) as client:
        stream = client.generate("r", 4, 2)
        next(stream)
        assert status(client.generate("r", 4, 2))[0] is grpc.StatusCode.ALREADY_EXISTS
        assert client.call("Abort", all_requests={}).status == 1
        assert list(stream)[-1].finished.reason == 3
        with pytest.raises(grpc.RpcError) as nothing:
            client.call("Abort")
        assert nothing.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("abort", [False, True])
def test_a_drain_with_a_deadline(abort: bool) -> None:
    engine = Engine()
    with serving(engine) as client:
        stream = client.generate("r", 4, 2)
        next(stream)
        progress = list(client.drain(stop_accepting_new_requests=True, deadline_ms=0, abort_after_deadline=abort))
        assert progress[0].in_flight_requests == 1
        assert (progress[-1].state == 3) is abort
        assert bool(progress[-1].error.message) is not abort
        engine.released.set()
        assert list(stream)[-1].finished.reason == (3 if abort else 2)


def test_only_a_signal_lets_streams_end() -> None:
    """Closed by an error, the server ends at once; the client is told so."""
    port, engine = free_ports(), Engine()
    with Client(f"127.0.0.1:{port}") as client:
        server = OpenEngineServer("127.0.0.1", port, engine, Faults(), lambda: True)
        stream = client.generate("r", 4, 2)
        next(stream)
        server.__exit__(OSError)
        assert status(stream)[0] in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)
        engine.released.set()

    port, engine = free_ports(), Engine()
    with Client(f"127.0.0.1:{port}") as client:
        server = OpenEngineServer("127.0.0.1", port, engine, Faults(), lambda: True)
        stream = client.generate("r", 4, 2)
        next(stream)
        closing = threading.Thread(target=server.__exit__, args=(Stopped,))
        closing.start()
        engine.released.set()
        assert list(stream)[-1].finished.reason == 2
        closing.join(20)
        assert not closing.is_alive()


def test_the_simulators_errors_have_names_of_openengine() -> None:
    rejected: list[tuple[Exception, str]] = [
        (RequestError("a"), "INVALID_ARGUMENT"),
        (UnavailableError("b"), "UNAVAILABLE"),
    ]
    for error, name in rejected:
        with pytest.raises(RejectedError) as found, translated():
            raise error
        assert found.value.status == name
    failed: list[tuple[Exception, str]] = [
        (TransferError("c"), "KV_TRANSFER_FAILED"),
        (InternalError("d"), "INTERNAL"),
        (GroupError("e"), "INTERNAL"),
    ]
    for error, name in failed:
        with pytest.raises(FailedError) as broken, translated():
            raise error
        assert broken.value.code == name


def test_where_it_listens() -> None:
    assert listen("0.0.0.0", None, None) is None
    anywhere, told = listen("0.0.0.0", 1, None), listen("0.0.0.0", 1, "10.0.0.1")
    assert anywhere
    assert told
    assert (anywhere.advertised, told.advertised) == ("127.0.0.1", "10.0.0.1")
