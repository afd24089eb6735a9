"""Check `direct_dispatch`: what discovery says, and who carried the requests."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from srtctl.checks import asking, carriers, direct_dispatch, gather, sockets
from srtctl.checks.carriers import FRONTEND, SIDECAR, Caller, Look
from srtctl.checks.context import Limits
from srtctl.checks.deployment import Process, Worker
from srtctl.checks.direct_dispatch import Sent, complaint, judge
from srtctl.checks.discovery import Card, parse
from srtctl.checks.frontend import Answer, counter
from srtctl.checks.model import Target
from srtctl.checks.net import Deadline, NetError
from srtctl.checks.pinning import Pin
from srtctl.checks.plan_file import load
from srtctl.checks.sockets import Connection

from .scenario import agg, as_text

ENDPOINT = "10.0.0.1:9100"
DIRECT, PLANE = (
    Worker(name, "agg", 1, (), {}, (Process(f"{name}.0", 0, ("engine", "sidecar"), "", {"grpc": 9100}),), direct=direct)
    for name, direct in (("agg-0", ENDPOINT), ("agg-1", ""))
)


def card(endpoint: str = "", mode: str = "") -> Card:
    return Card("k", 1, "m", "aggregated", 0, 1, 16, 4096, frozenset(), "", "", endpoint, mode)


@pytest.mark.parametrize(
    ("worker", "said", "words"),
    [
        (DIRECT, card(f"http://{ENDPOINT}", "agg"), ""),
        (DIRECT, card(ENDPOINT, "agg"), ""),
        (DIRECT, card(), "it advertises no gRPC endpoint, the plan has 10.0.0.1:9100"),
        (DIRECT, card("http://10.0.0.1:9101", "agg"), "it advertises http://10.0.0.1:9101, the plan has 10.0.0.1:9100"),
        (DIRECT, card(ENDPOINT, "decode"), "it advertises mode 'decode', the plan has it as 'agg'"),
        (PLANE, card(), ""),
        (
            PLANE,
            card(f"http://{ENDPOINT}", "agg"),
            "advertises http://10.0.0.1:9100, but the plan keeps it on the request",
        ),
    ],
)
def test_the_card_against_the_plan(worker: Worker, said: Card, words: str) -> None:
    found = complaint(worker, [said])
    assert words in found
    assert bool(words) == bool(found)


def test_a_card_of_discovery_has_what_it_advertises() -> None:
    entries = agg().entries
    [key, *_] = [key for key in entries if key.startswith("v1/mdc/")]
    data = entries[key]["card_json"]["runtime_config"]["runtime_data"]
    data |= {"native_grpc_endpoint": "http://h:1", "native_grpc_mode": "agg"}
    found = {c.key: (c.native_endpoint, c.native_mode) for c in parse(as_text(entries)).cards}
    assert found.pop(key) == ("http://h:1", "agg")
    assert set(found.values()) == {("", "")}


def look(handled: int | None = None, blind: str = "", **received: int | None) -> Look:
    names = {"frontend": FRONTEND, "sidecar": SIDECAR}
    return Look({names[who]: Caller(("10.0.0.9",), count) for who, count in received.items()}, handled, blind)


SENT = Sent(4, 1000)
IDLE = look(7, frontend=500, sidecar=300)
# worker, before, after, what was sent, verdict, words
JUDGED: dict[str, tuple[Worker, Look, Look, Sent, str, str]] = {
    "direct": (DIRECT, IDLE, look(7, frontend=1800, sidecar=310), SENT, "pass", "come from the frontend"),
    "direct, connected in between": (DIRECT, look(7), look(7, frontend=1300), SENT, "pass", "come from the frontend"),
    "direct, no count of the sidecar": (
        *(
            DIRECT,
            look(frontend=0, sidecar=300),
            look(frontend=1300, sidecar=310),
            SENT,
            "pass",
            "come from the frontend",
        ),
    ),
    "still through the sidecar": (
        *(DIRECT, IDLE, look(10, frontend=900, sidecar=1500), SENT, "fail", "3 of 4 requests still came through"),
    ),
    "no connection": (
        DIRECT,
        look(7, sidecar=300),
        look(7, sidecar=310),
        SENT,
        "fail",
        "no connection to its gRPC port 9100",
    ),
    "connected, but the bytes come from the sidecar": (
        *(DIRECT, look(frontend=500, sidecar=300), look(frontend=510, sidecar=1400), SENT, "fail"),
        "10 bytes came from the frontend at its gRPC port 9100 and 1100 from its sidecar",
    ),
    "both at once": (
        *(DIRECT, look(frontend=500, sidecar=300), look(frontend=1800, sidecar=1400), SENT, "fail", "1100 from its"),
    ),
    "one of four through the sidecar": (
        *(DIRECT, look(frontend=500, sidecar=300), look(frontend=1800, sidecar=600), SENT, "fail", "300 from its"),
    ),
    "a kernel that counts nothing": (
        *(DIRECT, look(7, frontend=None, sidecar=None), look(7, frontend=None, sidecar=None), SENT, "pass"),
        "the frontend is connected to its gRPC port, and its sidecar carries no request",
    ),
    "nothing counts anything": (
        *(DIRECT, look(frontend=None), look(frontend=None), SENT, "skip", "nothing counts what comes from whom"),
    ),
    "no node could be asked": (
        DIRECT,
        look(7, "no srun"),
        look(7, "no srun"),
        SENT,
        "skip",
        "who brings them, not through its sidecar, is not known: no srun",
    ),
    "blind in every way": (DIRECT, look(), look(blind="no srun"), SENT, "skip", "not known: no srun"),
    "request plane": (PLANE, look(7, sidecar=300), look(11, sidecar=1500), SENT, "pass", "come through its sidecar"),
    "request plane, others too": (PLANE, look(7, sidecar=1), look(30, sidecar=9000), SENT, "pass", "come through its"),
    "request plane, passed by": (PLANE, look(7, sidecar=1), look(8, sidecar=300), SENT, "fail", "only 1 of 4 requests"),
    "request plane, by bytes": (
        PLANE,
        look(sidecar=1),
        look(sidecar=300),
        SENT,
        "fail",
        "only 299 bytes came from its",
    ),
    "request plane, connected": (
        *(PLANE, look(7, frontend=5, sidecar=1), look(11, frontend=5, sidecar=2000), SENT, "fail"),
        "the frontend is connected to its gRPC port, but the plan keeps it on the request plane",
    ),
    "request plane, blind": (
        PLANE,
        look(7, "no srun"),
        look(11, "no srun"),
        SENT,
        "pass",
        "come through its sidecar",
    ),
    "request plane, blind in every way": (PLANE, look(), look(blind="no srun"), SENT, "skip", "not known: no srun"),
    "request plane, nothing counts": (
        *(PLANE, look(sidecar=None), look(sidecar=None), SENT, "skip", "nothing counts what comes from whom"),
    ),
    "request plane, no connection": (PLANE, look(), look(), SENT, "fail", "its sidecar has no connection"),
    "a request failed": (DIRECT, IDLE, IDLE, Sent(1, 0, "HTTP 503 from the frontend"), "fail", "HTTP 503"),
}


@pytest.mark.parametrize("name", JUDGED)
def test_who_carried_the_requests(name: str) -> None:
    worker, before, after, sent, verdict, words = JUDGED[name]
    result = judge(Target(worker.name), worker, before, after, sent)
    assert (result.verdict, words in result.message) == (verdict, True), result.message
    assert result.evidence["requests"] == sent.answered


def test_a_counter_is_summed_over_its_samples_with_the_labels() -> None:
    text = 'a{x="1",y="2"} 3\na{x="1",y="3"} 4\na{x="2",y="2"} 5\nb{x="1"} 6\n'
    assert (counter(text, "a", x="1"), counter(text, "a"), counter(text, "a", x="9")) == (7, 12, None)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket, int]]:
    """Two ends of a connection over loopback, and the port that was called."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as near, server.accept()[0] as far:
            yield near, far, port


def started(folder: Path) -> Path:
    """Events that say that this very process is the engine of agg-0.0."""
    events = folder / "node-0.jsonl"
    line = {"event": "started", "process": "agg-0.0", "part": "engine", "pid": os.getpid()}
    events.write_text('not json\n{"event":"listening"}\n' + json.dumps(line) + "\n")
    return events


def test_both_ends_of_a_connection_their_bytes_and_their_process(
    tmp_path: Path, pair: tuple[socket.socket, socket.socket, int]
) -> None:
    near, far, port = pair
    near.sendall(b"x" * 1234)
    assert len(far.recv(1234, socket.MSG_WAITALL)) == 1234
    caller = near.getsockname()[1]
    seen = {connection.local: connection for connection in sockets.look({port}, started(tmp_path))}
    assert seen[f"127.0.0.1:{port}"] == Connection(
        f"127.0.0.1:{port}", f"127.0.0.1:{caller}", 1234, "agg-0.0", "engine"
    )
    assert seen[f"127.0.0.1:{caller}"].received == 0


def test_connections_are_listed_where_the_kernel_has_no_diagnosis(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pair: tuple[socket.socket, socket.socket, int]
) -> None:
    def refuse(_: object) -> Iterator[bytes]:
        raise OSError(93, "Protocol not supported")

    monkeypatch.setattr(sockets, "_dump", refuse)
    port, caller = pair[2], pair[0].getsockname()[1]
    seen = {connection.local: connection for connection in sockets.look({port}, started(tmp_path))}
    expected = Connection(f"127.0.0.1:{port}", f"127.0.0.1:{caller}", None, "agg-0.0", "engine")
    assert seen[f"127.0.0.1:{port}"] == expected


@pytest.mark.parametrize(
    ("packed", "text"),
    [
        (bytes([10, 0, 0, 1]), "10.0.0.1"),
        (bytes(10) + b"\xff\xff" + bytes([10, 0, 0, 1]), "10.0.0.1"),  # a dual-stack server's view of IPv4
        (bytes(15) + b"\x01", "::1"),
    ],
)
def test_addresses_are_those_of_the_plan(packed: bytes, text: str) -> None:
    assert sockets._address(packed) == text


E1 = {"local": "10.0.0.1:9100", "remote": "10.0.0.2:40000"}
ENGINE_SIDE = Connection(**E1, received=10, process="agg-0.0", part="engine")


@pytest.mark.parametrize(
    ("connection", "other", "who"),
    [
        (ENGINE_SIDE, (1, Connection("10.0.0.2:40000", "10.0.0.1:9100", 0, "frontend-0", "frontend")), FRONTEND),
        # not visible whose it is: the address, then the node, tells
        (Connection("10.0.0.1:9100", "10.0.0.3:40000", 10, "agg-0.0", "engine"), None, FRONTEND),
        (ENGINE_SIDE, (1, Connection("10.0.0.2:40000", "10.0.0.1:9100", 0)), FRONTEND),
        (ENGINE_SIDE, (2, Connection("10.0.0.2:40000", "10.0.0.1:9100", 0)), "an unknown process at 10.0.0.2"),
        (ENGINE_SIDE, None, "an unknown process at 10.0.0.2"),
        (ENGINE_SIDE, (0, Connection("10.0.0.2:40000", "10.0.0.1:9100", 0, "agg-0.0", "sidecar")), SIDECAR),
        (ENGINE_SIDE, (0, Connection("10.0.0.2:40000", "10.0.0.1:9100", 0, "agg-1.0", "sidecar")), "agg-1.0 sidecar"),
        (ENGINE_SIDE, (1, Connection("10.0.0.2:40000", "10.0.0.1:9100", 0, "x-0", "client")), "x-0 client"),
        (Connection("127.0.0.1:9100", "127.0.0.1:4", 1), None, SIDECAR),
        (  # the same two addresses exist on every node's loopback
            Connection("127.0.0.1:9100", "127.0.0.1:4", 1),
            (1, Connection("127.0.0.1:4", "127.0.0.1:9100", 0, "frontend-0", "frontend")),
            SIDECAR,
        ),
    ],
)
def test_the_caller_is_known_by_its_process_else_by_its_address(
    connection: Connection, other: tuple[int, Connection] | None, who: str
) -> None:
    ends = {(0, connection.local, connection.remote): connection}
    if other:
        ends[other[0], other[1].local, other[1].remote] = other[1]
    there = carriers._There(ends, frozenset({1}), frozenset({"10.0.0.3"}))
    assert carriers._caller(connection, DIRECT.processes[0], there) == who


def test_outside_a_job_no_node_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with pytest.raises(NetError, match="outside the job"):
        asking.connections(None, [0], [1])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("said", "code", "words"),
    [
        ('{"node": 0, "connections": [{"local": "a:1", "remote": "b:2"}]}', 0, ""),
        ("", 1, "not every node could be asked for its connections: srun: error: no"),
        ('{"node": 3, "connections": []}', 0, "not every node could be asked"),
        ("nonsense", 0, "not every node could be asked"),
    ],
)
def test_what_srun_brings_back(
    said: str, code: int, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: dict[str, Any] = {}

    def run(argv: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        seen.update(argv=argv, env=options["env"])
        return subprocess.CompletedProcess(argv, code, said, "srun: error: no\n")

    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_NODELIST", "n[0-3]")
    monkeypatch.setattr(asking.subprocess, "run", run)
    scenario = agg()
    scenario.write(tmp_path)
    deployment = load(tmp_path / "plan.json", tmp_path / "nodes.tsv")
    if words:
        with pytest.raises(NetError, match=words):
            asking.connections(deployment, [0], [9100])
        return
    assert asking.connections(deployment, [0], [9100]) == {0: (Connection("a:1", "b:2"),)}
    assert {"--nodelist=node-a", "--jobid", "7", "--overlap"} <= set(seen["argv"])
    assert "SLURM_NODELIST" not in seen["env"]


def test_a_frontend_that_connects_late_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = iter([look(7, sidecar=3), look(7, sidecar=3), look(7, sidecar=3), look(7, frontend=2000, sidecar=3)])
    target = Target("agg-0")
    monkeypatch.setattr(direct_dispatch, "looks", lambda _, workers: {w.name: next(rounds) for w in workers})
    monkeypatch.setattr(direct_dispatch, "_send", lambda *_: SENT)
    context = FakeContext({Target("agg-0", 0): card(ENDPOINT, "agg")})
    [result] = direct_dispatch.run(context, [target]).results  # type: ignore[arg-type]
    assert (result.verdict, context.pauses) == ("pass", 1)
    assert (result.evidence["planned"], result.evidence["advertised"]) == (ENDPOINT, [ENDPOINT])


def test_every_rank_is_asked_through_every_frontend() -> None:
    asked = []

    class Asked(FakeContext):
        frontends = ("frontend-0", "frontend-1")

        def pin(self, _: object, rank: Target, turn: int) -> Pin:
            return Pin({"dp_rank": rank.rank, "turn": turn}, {})

        def chat(self, _: str, pin: dict[str, int], by: str) -> Answer:
            asked.append((pin["dp_rank"], by))
            return Answer("", {}, 250, 2, None, None)

    instances = {Target("agg-0", rank): card() for rank in (0, 1, 2)}
    sent = direct_dispatch._send(Asked(instances), instances, Target("agg-0"))  # type: ignore[arg-type]
    assert sorted(asked) == [(rank, by) for rank in (0, 1, 2) for by in Asked.frontends]
    assert sent == Sent(6, 1500)


@pytest.mark.parametrize(("place", "mine"), [(ENDPOINT, True), ("10.0.0.1:91001", False), ("10.0.0.2:9100", False)])
def test_a_frontend_that_could_not_connect_to_another_engine_is_no_cause(place: str, mine: bool) -> None:
    line = f'WARN direct dispatch: connect failed; worker_id=7 endpoint="http://{place}" error="refused"'
    assert gather._about([line, "other"], Target("agg-0"), DIRECT) == ([line, "other"] if mine else ["other"])
    assert gather._about([line, "other"], Target("agg-1"), PLANE) == ["other"]


class FakeContext:
    """As much of a context as a round of the check asks for."""

    limits = Limits()

    def __init__(self, instances: dict[Target, Card]) -> None:
        self.deadline, self.deployment, self.pauses = Deadline.after(60), self, 0
        self._instances = instances

    def worker(self, _: str) -> Worker:
        return DIRECT

    def instances(self) -> dict[Target, Card]:
        return self._instances

    def each(self, ask: Any, targets: list[Target]) -> dict[Target, Any]:
        return {target: ask(target) for target in targets}

    def pause(self) -> None:
        self.pauses += 1
