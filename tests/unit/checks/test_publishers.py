"""The socket of a KV publisher: what is heard on it, and what is wrong with it."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgpack
import pytest
import zmq

from srtctl.checks.context import Limits
from srtctl.checks.deployment import Worker
from srtctl.checks.publishers import Batch, MalformedError, complaint, decode

from .running_checks import run_only
from .scenario import AGG0, Scenario, agg

WORKER = Worker("agg-0", "agg", 2, (), {}, (), topic="kv-events")
STORED = ["BlockStored", [1], None, [5] * 16, 16, None, "GPU"]
REMOVED = [b"kv-events", bytes(8), msgpack.packb([1.5, [["BlockRemoved", [1], None]], 1])]
PATIENT = Limits(kv_events=20, settle=0.5, poll=0.01)


def message(rank: int | None = 1, topic: str = "kv-events", size: int = 16) -> list[bytes]:
    event = [*STORED[:4], size, *STORED[5:]]
    return [topic.encode(), (7).to_bytes(8, "big"), msgpack.packb([1.5, [event], rank])]


def batch(**changes: Any) -> Batch:
    return decode(message(**changes), msgpack)


def test_a_batch_is_read_as_the_sidecar_reads_it() -> None:
    assert batch() == Batch("kv-events", 7, 1, ("BlockStored",), frozenset({16}))
    mapped = [1.5, [{"type": "BlockStored", "block_size": 8}, {"type": "BlockRemoved"}]]
    assert decode([b"", bytes(8), msgpack.packb(mapped)], msgpack) == Batch(
        "", 0, None, ("BlockStored", "BlockRemoved"), frozenset({8})
    )


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        ([b"a", b"b"], "2 frames, not three"),
        ([b"a", bytes(8), b"\xc1"], "no msgpack"),
        ([b"a", bytes(8), msgpack.packb({"events": []})], "is not [timestamp, events, DP rank] but dict"),
        ([b"a", bytes(8), msgpack.packb([1.5])], "is not [timestamp, events, DP rank]"),
        ([b"a", bytes(8), msgpack.packb([1.5, [7]])], "an event is not what SGLang or vLLM publish: 7"),
        ([b"a", bytes(8), msgpack.packb([1.5, [["BlockStored", []]]])], "an event is not what"),
        ([b"a", bytes(8), msgpack.packb([1.5, [{"type": "BlockStored"}]])], "an event is not what"),
    ],
)
def test_what_nobody_can_decode(frames: list[bytes], words: str) -> None:
    with pytest.raises(MalformedError) as caught:
        decode(frames, msgpack)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "rank", "words"),
    [
        ({}, 1, ""),
        ({"topic": "kv-events-0"}, 1, ""),  # a subscription is a prefix
        ({"rank": None}, 0, ""),  # the router takes it for rank 0
        ({"rank": None}, 1, "its batches carry no DP rank, which counts as rank 0, not 1"),
        ({"rank": 0}, 1, "its batches carry DP rank 0, not 1"),
        ({"topic": "other"}, 1, "it publishes under topic 'other', the plan has 'kv-events'"),
        ({"size": 8}, 1, "its events have blocks of 8 tokens, the worker registered blocks of 16"),
    ],
)
def test_complaints(changes: dict[str, Any], rank: int, words: str) -> None:
    assert complaint(batch(**changes), WORKER, rank, 16) == words


@contextmanager
def publishing(send: list[bytes] | None) -> Iterator[int]:
    """A bound PUB socket that sends `send` all the time; its port."""
    context = zmq.Context()
    socket = context.socket(zmq.PUB)
    socket.setsockopt(zmq.LINGER, 0)
    port = socket.bind_to_random_port("tcp://127.0.0.1")
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(0.02):
            if send:
                socket.send_multipart(send)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield port
    finally:
        stop.set()
        thread.join()
        socket.close()
        context.term()


def planned(port: int) -> Scenario:
    """agg-0 publishes rank 1 on plan node 2, which is this machine."""
    scenario = agg()
    leader, follower = scenario.plan["workers"][0]["processes"]
    leader["argv"] += ["--kv-events-config", '{"topic": "kv-events"}']
    follower.update(node=2, publishers=[{"dp_rank": 1, "port": port}])
    scenario.add_check("publishers", [{"worker": "agg-0", "dp_rank": 1}])
    return scenario


def test_a_good_publisher_passes(tmp_path: Path) -> None:
    with publishing(message()) as port:
        check = run_only(planned(port), tmp_path, "publishers", PATIENT)
    (target,) = check["targets"]
    assert target["verdict"] == "pass"
    evidence = target["evidence"]
    assert (evidence["port"], evidence["node"], evidence["process"]) == (port, "node-c", "agg-0.1")
    assert (evidence["event_dp_rank"], evidence["event_block_sizes"], evidence["topic"]) == (1, [16], "kv-events")


BAD: dict[str, tuple[list[bytes], str]] = {
    "another rank": (message(rank=0), "its batches carry DP rank 0, not 1"),
    "not three frames": ([b"kv-events"], "cannot be used: a message has 1 frames, not three"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_publisher_is_named(name: str, tmp_path: Path) -> None:
    send, words = BAD[name]
    with publishing(send) as port:
        (target,) = run_only(planned(port), tmp_path, "publishers", PATIENT)["targets"]
    assert target["verdict"] == "fail"
    assert words in target["message"]
    assert f"port {port} on node-c" in target["message"]
    assert target["diagnosis"]["cause"]


@pytest.mark.parametrize("send", [None, REMOVED], ids=["nothing", "removals without end"])
def test_what_is_not_sent_is_left_to_kv_events(send: list[bytes] | None, tmp_path: Path) -> None:
    """One silence is one fault: the check that proves the events themselves names it."""
    with publishing(send) as port:
        (target,) = run_only(planned(port), tmp_path, "publishers", Limits(kv_events=0))["targets"]
    assert target["verdict"] == "skip"
    assert f"port {port} on node-c sent no Stored event for 1 new prompts" in target["message"]


def test_nobody_there(tmp_path: Path) -> None:
    with publishing(None) as port:
        pass
    (tmp_path / "state").mkdir()
    survey = f"node\tnode-c\nlisten\t6201\tagg-0.1\nlisten\t22\t\nlisten\t{port + 1}\tagg-0.0\n"
    (tmp_path / "state" / "survey.2.tsv").write_text(survey)
    (target,) = run_only(planned(port), tmp_path, "publishers")["targets"]
    assert f"does not listen on port {port} on node-c: Connection refused" in target["message"]
    assert target["evidence"]["listening_unclaimed"] == [6201]
    assert "[6201]" in target["diagnosis"]["cause"]


def test_a_decode_publisher_may_be_silent(tmp_path: Path) -> None:
    from .scenario import disaggregated

    with publishing(None) as port:
        scenario = disaggregated()
        (process,) = scenario.plan["workers"][1]["processes"]
        process.update(node=2, publishers=[{"dp_rank": 0, "port": port}])
        scenario.add_check("publishers", [{"worker": "decode-0", "dp_rank": 0}])
        (target,) = run_only(scenario, tmp_path, "publishers", Limits(settle=0))["targets"]
    assert (target["verdict"], target["message"]) == (
        "pass",
        "its socket is there; a decode engine need not keep a cache",
    )


@pytest.mark.parametrize("missing", ["zmq", "msgpack"])
def test_a_python_without_the_libraries_skips(missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[[str], Any] = importlib.import_module

    def find(name: str) -> Any:
        if name == missing:
            raise ImportError(name=name)
        return real(name)

    monkeypatch.setattr(importlib, "import_module", find)
    check = run_only(planned(1), tmp_path, "publishers")
    assert check["verdict"] == "skip"
    assert f"no module {missing!r}" in check["reason"]


def test_a_rank_that_fails_a_request(tmp_path: Path) -> None:
    with publishing(None) as port:
        scenario = planned(port)
        scenario.errors[(AGG0, 1)] = (500, "boom")
        (target,) = run_only(scenario, tmp_path, "publishers")["targets"]
    assert target["message"] == "agg-0 rank 1: HTTP 500 from the frontend: boom"
