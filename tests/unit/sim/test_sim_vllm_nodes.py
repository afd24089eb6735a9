"""The simulated vLLM over several processes: hybrid and central DP, a replica over nodes, and losing a member."""

from __future__ import annotations

import itertools
import signal
import socket
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from vllm_server import events

Launch = Callable[..., Any]
PROMPT = list(range(10, 26))


def dp_node(node: int, port: int, *more: object) -> list[object]:
    """The flags of one of two nodes with two DP ranks each."""
    sizes: list[object] = ["--data-parallel-size", 4, "--data-parallel-size-local", 2]
    meeting = ["--data-parallel-address", "127.0.0.1", "--data-parallel-rpc-port", port]
    return [*sizes, *meeting, "--data-parallel-start-rank", 2 * node, *more]


def replica_node(node: int, port: int, *more: object) -> list[object]:
    """The flags of one of two nodes of a TP4 replica."""
    sizes: list[object] = ["--tensor-parallel-size", 4, "--nnodes", 2, "--distributed-executor-backend", "mp"]
    own = ["--node-rank", node, *(["--headless"] if node else [])]
    return [*sizes, "--master-addr", "127.0.0.1", "--master-port", port, *own, *more]


def test_hybrid_nodes_serve_their_own_ranks(launch_vllm: Launch, subscribe: Any, ports: Any) -> None:
    meeting = ports()
    nodes = [launch_vllm(*dp_node(n, meeting, "--data-parallel-hybrid-lb", *events())) for n in (0, 1)]
    prompts = itertools.count(100)
    for number, node in enumerate(nodes):
        node.ready()
        said = node.call("GetServerInfo").parallelism
        assert (said.data_parallel_size, said.data_parallel_rank, said.data_parallel_size_local) == (4, 2 * number, 2)
        sources = node.sources()
        assert sorted(sources) == [2 * number, 2 * number + 1]
        for rank, endpoint in sources.items():
            assert node.generate(rank, PROMPT)[0].startswith(f"r{rank}a")
            subscriber = subscribe(int(endpoint.rpartition(":")[2]), "kv-events")

            def batch(node: Any = node, rank: int = rank, subscriber: Any = subscriber) -> Any:
                return node.generate(rank, [next(prompts)] * 8) and subscriber.batch(0.1)

            assert node.until("an event arrives", batch)[3] == rank
    with pytest.raises(grpc.RpcError, match=r"data_parallel_rank 2 is out of range: this server has \[0, 1\]"):
        nodes[0].generate(2, PROMPT)


def test_no_node_is_up_before_all_have_met(launch_vllm: Launch, ports: Any) -> None:
    meeting = ports()
    first = launch_vllm(*dp_node(0, meeting, "--data-parallel-hybrid-lb"))
    first.until("it waits", lambda: socket.create_connection(("127.0.0.1", meeting), timeout=5).close() or True)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", first.grpc_port), timeout=5).close()
    launch_vllm(*dp_node(1, meeting, "--data-parallel-hybrid-lb")).ready()
    first.ready()


def test_one_server_for_the_ranks_of_all_nodes(launch_vllm: Launch, ports: Any) -> None:
    meeting = ports()
    follower = launch_vllm(*dp_node(1, meeting, "--headless"))
    leader = launch_vllm(*dp_node(0, meeting)).ready()
    assert {leader.generate(rank, PROMPT)[0][:2] for rank in range(4)} == {"r0", "r1", "r2", "r3"}
    assert "Headless: no server on this node" in follower.log


def test_a_replica_computes_on_all_its_nodes(launch_vllm: Launch, ports: Any) -> None:
    meeting = ports()
    follower = launch_vllm(*replica_node(1, meeting))
    leader = launch_vllm(*replica_node(0, meeting, *events())).ready()
    assert leader.generate(0, PROMPT, rid="x")[0].startswith("r0a")
    assert "Forward: rid=x dp_rank=0" in follower.log
    assert list(leader.sources()) == [0]
    assert "listens" not in follower.log


@pytest.mark.parametrize(("victim", "survivor"), [(0, 1), (1, 0)])
@pytest.mark.parametrize("spread", [dp_node, replica_node])
def test_when_a_member_dies_the_others_end(
    launch_vllm: Launch, ports: Any, spread: Callable[..., list[object]], victim: int, survivor: int
) -> None:
    meeting = ports()
    more = ("--data-parallel-hybrid-lb",) if spread is dp_node else ()
    nodes = [launch_vllm(*spread(n, meeting, *more)) for n in (0, 1)]
    for node in nodes:
        node.until("it is up", lambda node=node: "Application startup complete" in node.log)
    nodes[victim].process.kill()
    assert nodes[survivor].ended() == 1
    last = nodes[survivor].last_line
    assert last.startswith("vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue: ")
    assert f"node_rank {victim} left the group" in last


def test_all_stopped_together_end_cleanly(launch_vllm: Launch, ports: Any) -> None:
    meeting = ports()
    nodes = [launch_vllm(*replica_node(n, meeting)) for n in (0, 1)]
    for node in nodes:
        node.until("it is up", lambda node=node: "Application startup complete" in node.log)
    for node in nodes:
        node.process.send_signal(signal.SIGTERM)
    assert [node.ended() for node in nodes] == [0, 0]


def test_members_that_do_not_come(launch_vllm: Launch, ports: Any) -> None:
    meeting, nobody = ports(), ports()
    leader = launch_vllm(*replica_node(0, meeting), group_timeout=1)
    follower = launch_vllm(*replica_node(1, nobody), group_timeout=1)
    assert [leader.ended(), follower.ended()] == [1, 1]
    assert (
        f"DistNetworkError: Timed out after 1s waiting for clients: node_rank 1 did not join at 127.0.0.1:{meeting}"
        in (leader.last_line)
    )
    assert f"could not join the group at 127.0.0.1:{nobody} within 1s" in follower.last_line
    assert follower.last_line.endswith("check --master-addr")


def test_other_sizes_do_not_fit(launch_vllm: Launch, ports: Any) -> None:
    meeting = ports()
    nodes = [launch_vllm(*replica_node(n, meeting), "--pipeline-parallel-size", n + 1) for n in (0, 1)]
    assert [node.ended() for node in nodes] == [1, 1]
    assert all("node_rank 1 was started with other sizes than node_rank 0" in node.last_line for node in nodes)
