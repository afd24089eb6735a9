"""Publishers whose port the engine chooses: what it tells over its native gRPC, and whose socket is there."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from srtctl.checks import engine_info, vllm_info
from srtctl.checks.deployment import Publisher
from srtctl.checks.net import NetError
from srtctl.checks.protobuf import fields
from srtctl.checks.published import NotPublishedError, port_of, stranger
from srtctl.checks.survey import NodeView
from srtctl.checks.vllm_info import KvSource, kv_sources
from srtctl.sim.grpc_listener import GrpcListener
from srtctl.sim.protobuf import service
from srtctl.sim.vllm.messages import CONTROL, HEALTH, HEALTH_MESSAGES, MESSAGES, NAMES, NOT_SERVING, SERVING

from .running_checks import run_only
from .scenario import Scenario, agg
from .test_publishers import PATIENT, message, publishing

DISCOVERED, FIXED = Publisher("agg-0.1", 1, 0), Publisher("agg-0.1", 1, 5201)
Source = Mapping[str, Any]


def source(rank: int | None, port: int = 41000, **more: object) -> Source:
    said = {"transport": "zmq", "endpoint": f"tcp://*:{port}", "topic": "kv-events", **more}
    return said if rank is None else {**said, "data_parallel_rank": rank}


@contextmanager
def engine(*sources: Source, health: int = SERVING) -> Iterator[int]:
    """A vLLM engine's native gRPC server on loopback, as far as the checks ask it; its port."""
    parallelism = MESSAGES["ParallelismInfo"](data_parallel_size=300, data_parallel_rank=1, tensor_parallel_size=2)
    server = MESSAGES["ServerInfo"](engine_version="0.21.0", api_version="vllm", parallelism=parallelism)
    answer = MESSAGES["GetKvEventSourcesResponse"](sources=[MESSAGES["KvEventSource"](**each) for each in sources])
    status = HEALTH_MESSAGES["HealthCheckResponse"](status=health)
    control = {"GetServerInfo": lambda *_: server, "GetKvEventSources": lambda *_: answer}
    with publishing(None) as port:  # free a moment ago
        pass
    listener = GrpcListener(
        "127.0.0.1",
        port,
        (
            service(CONTROL, MESSAGES, control, names=NAMES),
            service(HEALTH, HEALTH_MESSAGES, {"Check": lambda *_: status}, names=NAMES),
        ),
    )
    try:
        yield port
    finally:
        listener.close()


def test_the_sources_are_read_without_generated_code() -> None:
    with engine(source(0), source(300, 65535), source(None, endpoint="ipc:///x")) as port:
        assert kv_sources("127.0.0.1", port) == (
            KvSource("zmq", "tcp://*:41000", 0),
            KvSource("zmq", "tcp://*:65535", 300),
            KvSource("zmq", "ipc:///x", None),
        )


@pytest.mark.parametrize(("health", "end"), [(SERVING, "ranks [1]"), (NOT_SERVING, "ranks [1], not SERVING")])
def test_what_the_engine_says_of_itself(health: int, end: str, capsys: pytest.CaptureFixture[str]) -> None:
    with engine(source(1), health=health) as port:
        said = vllm_info.facts("127.0.0.1", port)
        assert engine_info.described("127.0.0.1", port) == said  # SGLang's service is not there
        assert engine_info.main(["127.0.0.1", str(port)]) == 0
    assert said.startswith("vLLM 0.21.0: data_parallel_size=300, data_parallel_rank=1, data_parallel_size_local=0")
    assert said.endswith(end)
    assert capsys.readouterr().out.startswith(said)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (b"\x08", "ends inside a number"),
        (b"\x0a\x05ab", "ends inside a field"),
        (b"\x0b", "wire type 3"),
    ],
)
def test_what_is_no_message(message: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        list(fields(message))


def test_fields_of_all_kinds() -> None:
    assert list(fields(b"\x08\xac\x02\x12\x01a\x1d\1\0\0\0\x21\1\0\0\0\0\0\0\0")) == [
        (1, 300),
        (2, b"a"),
        (3, b"\1\0\0\0"),
        (4, b"\1\0\0\0\0\0\0\0"),
    ]


def test_a_planned_port_is_not_asked_for() -> None:
    assert port_of(FIXED, 1, "192.0.2.1", None, 0) == 5201


def test_a_discovered_port_is_the_engines_word() -> None:
    with engine(source(0), source(1, 41001)) as port:
        assert port_of(DISCOVERED, 1, "127.0.0.1", port, 5) == 41001


@pytest.mark.parametrize(
    ("sources", "words"),
    [
        ([], r"agg-0.1 names no address for rank 1; it names ranks \[\]"),
        ([source(0)], r"names no address for rank 1; it names ranks \[0\]"),
        ([source(1), source(1, 41001)], "names 2 addresses for rank 1"),
        ([source(1, 0)], "names no address for rank 1 that anybody can use: zmq 'tcp://\\*:0'"),
        ([source(1, transport="nats")], "that anybody can use: nats"),
        ([source(1, endpoint="ipc:///x")], "that anybody can use: zmq 'ipc:///x'"),
    ],
)
def test_what_tells_no_port(sources: list[Source], words: str) -> None:
    with engine(*sources) as port, pytest.raises(NotPublishedError, match=words):
        port_of(DISCOVERED, 1, "127.0.0.1", port, 5)


def test_an_engine_that_cannot_be_asked() -> None:
    with pytest.raises(NetError, match="has no native gRPC port"):
        port_of(DISCOVERED, 1, "127.0.0.1", None, 5)
    with engine() as port:
        pass
    with pytest.raises(NetError, match="UNAVAILABLE"):
        port_of(DISCOVERED, 1, "127.0.0.1", port, 5)


@pytest.mark.parametrize(
    ("publisher", "listening", "other"),
    [
        (DISCOVERED, {41000: "agg-0.1"}, ""),
        (DISCOVERED, {41000: "agg-0.0"}, "agg-0.0"),
        (DISCOVERED, {41000: ""}, "no process of this run"),
        (DISCOVERED, {}, "no process of this run"),
        (FIXED, {41000: "agg-0.0"}, "agg-0.0"),
        (FIXED, {41000: ""}, ""),
    ],
)
def test_whose_socket_it_is(publisher: Publisher, listening: dict[int, str], other: str) -> None:
    assert stranger(publisher, 41000, NodeView(listening=listening)) == other
    assert stranger(publisher, 41000, None) == ""


def planned(grpc_port: int) -> Scenario:
    """agg-0 publishes rank 1 on plan node 2, which is this machine, on a port of its choice."""
    scenario = agg()
    leader, follower = scenario.plan["workers"][0]["processes"]
    leader["argv"] += ["--kv-events-config", '{"topic": "kv-events"}']
    follower.update(node=2, publishers=[{"dp_rank": 1, "port": 0}], ready_port=grpc_port)
    claim = {"node": 2, "first": grpc_port, "count": 1, "purpose": "grpc", "owner": "agg-0.1"}
    scenario.plan["claims"].append(claim)
    scenario.add_check("publishers", [{"worker": "agg-0", "dp_rank": 1}])
    return scenario


def surveyed(folder: Path, port: int, owner: str) -> None:
    (folder / "state").mkdir()
    (folder / "state" / "survey.2.tsv").write_text(f"node\tnode-c\nlisten\t{port}\t{owner}\n")


def test_the_check_reads_the_address_and_compares_owner_and_rank(tmp_path: Path) -> None:
    with publishing(message()) as port, engine(source(1, port)) as grpc_port:
        surveyed(tmp_path, port, "agg-0.1")
        (target,) = run_only(planned(grpc_port), tmp_path, "publishers", PATIENT)["targets"]
    assert target["verdict"] == "pass", target
    evidence = target["evidence"]
    found = (evidence["port"], evidence["discovered"], evidence["owner"], evidence["event_dp_rank"])
    assert found == (port, True, "agg-0.1", 1)


@pytest.mark.parametrize(
    ("owner", "rank", "words"),
    [
        ("agg-0.0", 1, "but that is the socket of agg-0.0"),
        ("", 1, "but that is the socket of no process of this run"),
        ("agg-0.1", 0, "its batches carry DP rank 0, not 1"),
    ],
)
def test_another_owner_or_rank_fails(owner: str, rank: int, words: str, tmp_path: Path) -> None:
    with publishing(message(rank=rank)) as port, engine(source(1, port)) as grpc_port:
        surveyed(tmp_path, port, owner)
        (target,) = run_only(planned(grpc_port), tmp_path, "publishers", PATIENT)["targets"]
    assert target["verdict"] == "fail"
    assert words in target["message"]
    assert target["diagnosis"]["cause"]


def test_whose_socket_it_is_must_have_been_seen(tmp_path: Path) -> None:
    with publishing(message()) as port, engine(source(1, port)) as grpc_port:
        (target,) = run_only(planned(grpc_port), tmp_path, "publishers", PATIENT)["targets"]
    assert (target["verdict"], target["evidence"]["event_dp_rank"]) == ("skip", 1)
    assert "nobody saw whose socket" in target["message"]


def test_an_address_that_is_not_told_fails(tmp_path: Path) -> None:
    with engine(source(0)) as grpc_port:
        (target,) = run_only(planned(grpc_port), tmp_path, "publishers", PATIENT)["targets"]
    assert target["verdict"] == "fail"
    assert "names no address for rank 1" in target["message"]
    assert "GetKvEventSources" in target["diagnosis"]["remedy"]
    assert "vLLM 0.21.0" in target["diagnosis"]["cause"]


def test_a_python_without_grpc_skips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[[str], Any] = importlib.import_module

    def find(name: str) -> Any:
        if name == "grpc":
            raise ImportError(name=name)
        return real(name)

    monkeypatch.setattr(importlib, "import_module", find)
    (target,) = run_only(planned(9100), tmp_path, "publishers")["targets"]
    assert target["verdict"] == "skip"
    assert "no module 'grpc'" in target["message"]
