"""Simulated SGLang over several processes: forming the group, serving through it, and losing a member."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from srtctl.sim.address import Address
from srtctl.sim.errors import GroupError
from srtctl.sim.rendezvous import Membership, Rendezvous, join

Launch = Callable[..., Any]
PROMPT = list(range(10, 26))


def node(rank: int, port: int, nnodes: int = 2, tp: int = 2, dp: int = 2) -> list[object]:
    """The flags of one process of an attention-DP engine."""
    sizes: list[object] = ["--tp-size", tp, "--dp-size", dp, "--enable-dp-attention", "--nnodes", nnodes]
    return [*sizes, "--node-rank", rank, "--dist-init-addr", f"127.0.0.1:{port}"]


def test_the_leader_serves_the_ranks_of_all_nodes(launch: Launch, subscribe: Any, ports: Any) -> None:
    dist, base = ports(), ports(4)
    events = {"publisher": "zmq", "topic": "", "endpoint": f"tcp://*:{base}"}
    flags = ["--kv-events-config", json.dumps(events)]
    follower = launch(*node(1, dist, tp=4, dp=4), *flags)
    leader = launch(*node(0, dist, tp=4, dp=4), *flags).ready()
    follower.ready()
    assert follower.get("/v1/models")[0] == 404

    def ranks(server: Any) -> list[int]:
        return [source["dp_rank"] for source in server.info()["kv_event_sources"]]

    assert (ranks(leader), ranks(follower)) == ([0, 1], [2, 3])
    subscribers = [subscribe(base + rank) for rank in range(4)]
    prompts = iter(range(1000, 30000))
    for rank, subscriber in enumerate(subscribers):
        assert leader.generate(rank, PROMPT)[1]["cached_tokens"] == 0
        assert leader.generate(rank, PROMPT)[1]["cached_tokens"] == 16

        def batch(rank: int = rank, subscriber: Any = subscriber) -> Any:
            return leader.generate(rank, [next(prompts)] * 4) and subscriber.batch(0.1)

        assert leader.until("an event arrives", batch)[3] == rank
    assert leader.get("/flush_cache")[0] == 200
    assert [leader.generate(rank, PROMPT)[1]["cached_tokens"] for rank in range(4)] == [0, 0, 0, 0]
    with pytest.raises(grpc.RpcError) as error:
        follower.generate(2, PROMPT)
    assert error.value.code() == grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize(("victim", "survivor"), [(0, 1), (1, 0)])
def test_when_a_member_dies_the_others_end(launch: Launch, ports: Any, victim: int, survivor: int) -> None:
    dist = ports()
    servers = [launch(*node(rank, dist)) for rank in (0, 1)]
    for server in servers:
        server.ready()
    servers[victim].process.kill()
    assert servers[survivor].ended() == 1
    assert f"node_rank {victim} left the group" in servers[survivor].last_line


def test_a_member_that_dies_while_loading_ends_the_others(launch: Launch, ports: Any) -> None:
    dist = ports()
    leader, follower = launch(*node(0, dist)), launch(*node(1, dist), fault="start_delay=600")
    follower.until("loading", lambda: "Load weight begin" in follower.log)
    follower.process.kill()
    assert leader.ended() == 1
    assert "node_rank 1 left the group" in leader.last_line
    assert "listens" not in leader.log


def test_all_members_stopped_together_end_cleanly(launch: Launch, ports: Any) -> None:
    dist = ports()
    servers = [launch(*node(rank, dist)) for rank in (0, 1)]
    for server in servers:
        server.ready()
    for server in servers:
        server.process.send_signal(signal.SIGTERM)
    assert [server.ended() for server in servers] == [0, 0]


def test_nothing_listens_before_everyone_has_loaded(launch: Launch, ports: Any) -> None:
    dist = ports()
    leader, follower = launch(*node(0, dist)), launch(*node(1, dist), fault="start_delay=600")
    leader.until("loading", lambda: "Load weight begin" in leader.log)
    for port in (leader.port, leader.grpc_port, follower.port, follower.grpc_port):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
    leader.process.terminate()
    assert leader.ended() == 0


def test_a_port_probe_is_not_a_member(launch: Launch, ports: Any) -> None:
    dist = ports()
    leader = launch(*node(0, dist))
    leader.until("it listens", lambda: socket.create_connection(("127.0.0.1", dist), timeout=5).close() or True)
    with socket.create_connection(("127.0.0.1", dist), timeout=5) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        launch(*node(1, dist)).ready()
        leader.ready()


def test_missing_members_and_wrong_addresses(launch: Launch, ports: Any) -> None:
    dist, nobody = ports(), ports()
    leader = launch(*node(0, dist, nnodes=3, tp=3, dp=3), group_timeout=1)
    follower = launch(*node(1, nobody), group_timeout=1)
    foreign = launch(*node(0, nobody), "--dist-init-addr", f"192.0.2.1:{nobody}", group_timeout=1)
    assert [server.ended() for server in (leader, follower, foreign)] == [1, 1, 1]
    assert f"node_rank 1, 2 did not join at 127.0.0.1:{dist}" in leader.last_line
    assert f"node_rank 1 could not join the group at 127.0.0.1:{nobody} within 1s" in follower.last_line
    assert f"cannot listen on --dist-init-addr 192.0.2.1:{nobody}" in foreign.last_line


def test_names_that_do_not_resolve(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    address = Address("leader", 5000)
    with pytest.raises(OSError, match=r"cannot listen on --dist-init-addr leader:5000: .*Name or service not known"):
        Rendezvous(address, "--dist-init-addr")
    with pytest.raises(GroupError, match=r"could not join the group at leader:5000 .*Name or service not known"):
        join(address, Membership(1, 2, address, {"tp": 2}, "--dist-init-addr"), timeout=0)


def test_a_follower_that_reached_something_else(launch: Launch, ports: Any) -> None:
    port = ports()
    with socket.create_server(("127.0.0.1", port)) as other:
        follower = launch(*node(1, port), group_timeout=20)
        connection, _ = other.accept()
        connection.close()
        assert follower.ended() == 1
    # closed before or after the follower had sent its first message
    assert f"127.0.0.1:{port} closed the connection" in follower.last_line or "could not join" in follower.last_line


def test_sizes_must_agree(launch: Launch, ports: Any) -> None:
    dist = ports()
    servers = [launch(*node(0, dist)), launch(*node(1, dist, tp=4))]
    assert [server.ended() for server in servers] == [1, 1]
    assert all("node_rank 1 was started with other sizes than node_rank 0" in server.last_line for server in servers)


def test_a_node_rank_given_twice(launch: Launch, ports: Any) -> None:
    dist = ports()
    servers = [launch(*node(rank, dist, nnodes=3, tp=3, dp=3)) for rank in (0, 1, 1)]
    assert [server.ended() for server in servers] == [1, 1, 1]
    assert all("node_rank 1 joined, but only [2] are missing" in server.last_line for server in servers)


def test_a_latecomer_does_not_disturb_the_group(launch: Launch, ports: Any) -> None:
    dist = ports()
    servers = [launch(*node(rank, dist)) for rank in (0, 1)]
    for server in servers:
        server.ready()
    late = launch(*node(1, dist))
    assert late.ended() == 1
    assert "has formed already; node_rank 1 is taken" in late.last_line
    assert servers[0].generate(1, PROMPT)[1]["completion_tokens"] == 4


def test_a_request_flows_through_all_pipeline_stages(launch: Launch, ports: Any) -> None:
    events = {"publisher": "zmq", "topic": "", "endpoint": f"tcp://*:{ports(2)}"}
    dist = ports()
    flags = ("--pp-size", 2, "--kv-events-config", json.dumps(events))
    servers = [launch(*node(rank, dist, nnodes=4), *flags) for rank in range(4)]
    for server in servers:
        server.ready()
    sources = [[source["dp_rank"] for source in server.info()["kv_event_sources"]] for server in servers]
    assert sources == [[0], [1], [], []]
    for rank in (0, 1):
        assert servers[0].generate(rank, PROMPT, rid=f"rid-{rank}")[1]["cached_tokens"] == 0
        assert servers[0].generate(rank, PROMPT)[1]["cached_tokens"] == 16
        assert f"Prefill: rid=rid-{rank} dp_rank={rank} " in servers[0].log
    passed = [[rank for rank in (0, 1) if f"Forward: rid=rid-{rank} dp_rank={rank}" in s.log] for s in servers]
    assert passed == [[], [], [0], [1]]


def test_pipeline_stages_without_dp(launch: Launch, ports: Any) -> None:
    dist = ports()
    sizes = ("--tp-size", 2, "--pp-size", 2, "--nnodes", 2, "--dist-init-addr", f"127.0.0.1:{dist}")
    events = {"publisher": "zmq", "topic": "", "endpoint": f"tcp://*:{ports()}"}
    flags = ("--kv-events-config", json.dumps(events))
    leader, last = [launch(*sizes, "--node-rank", rank, *flags) for rank in (0, 1)]
    assert [len(server.ready().info()["kv_event_sources"]) for server in (leader, last)] == [1, 0]
    assert len(leader.generate(0, PROMPT, rid="x")[0]) == 4
    assert "Forward: rid=x dp_rank=0" in last.log
