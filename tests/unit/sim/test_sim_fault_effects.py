"""What faults look like from outside; those of starting, ending and answering are in test_sim_server."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from srtctl.sim.faults import WRONG_PORT_OFFSET

Launch = Callable[..., Any]
PROMPT = list(range(10, 26))  # four blocks of four


def kv_events(port: int) -> tuple[str, str]:
    events = {"publisher": "zmq", "topic": "kv-events", "endpoint": f"tcp://*:{port}"}
    return ("--kv-events-config", json.dumps(events))


def first_batch(server: Any, subscriber: Any) -> Any:
    """The first batch of rank 0. Prompts are sent until it is there: what precedes the subscription is lost."""
    prompts = iter(range(1000, 30000))
    return server.until("an event arrives", lambda: server.generate(0, [next(prompts)] * 8) and subscriber.batch(0.1))


def test_wrong_port(launch: Launch, subscribe: Any, ports: Any) -> None:
    port = ports()
    server = launch(*kv_events(port), fault="wrong_port").ready()
    planned, real = subscribe(port), subscribe(port + WRONG_PORT_OFFSET)
    assert first_batch(server, real)[3] == 0
    assert planned.batch(0) is None
    assert server.info()["kv_event_sources"][0]["endpoint"] == f"tcp://127.0.0.1:{port}"


def test_block_size(launch: Launch, subscribe: Any, ports: Any) -> None:
    port = ports()
    server = launch(*kv_events(port), fault="block_size=8").ready()
    (stored,) = first_batch(server, subscribe(port))[2]
    kind, hashes, _, tokens, block_size, *_ = stored
    assert (kind, len(hashes), len(tokens), block_size) == ("BlockStored", 1, 8, 8)
    info = server.info()
    assert (info["page_size"], info["kv_event_sources"][0]["block_size"]) == (4, 4)


def test_no_rank(launch: Launch, subscribe: Any, ports: Any) -> None:
    port = ports()
    server = launch(*kv_events(port), fault="no_rank").ready()
    assert first_batch(server, subscribe(port))[3] is None


def test_dead_engine(launch: Launch) -> None:
    server = launch(fault="dead_engine").ready()
    assert server.call("HealthCheck").healthy
    assert server.info()["status"] == "ready"
    with pytest.raises(grpc.RpcError) as error:
        server.generate(0, PROMPT)
    assert error.value.code() == grpc.StatusCode.UNAVAILABLE
    assert server.process.poll() is None


def test_zero_tokens(launch: Launch) -> None:
    server = launch(fault="zero_tokens").ready()
    tokens, meta = server.generate(0, PROMPT)
    assert (tokens, meta["completion_tokens"], meta["finish_reason"]) == ([], 0, {"type": "length", "length": 0})


@pytest.mark.parametrize(
    ("fault", "same_as_leader", "told"), [("", True, True), ("wrong_group", False, False), ("same_group", True, False)]
)
def test_groups(launch: Launch, ports: Any, fault: str, same_as_leader: bool, told: bool) -> None:
    """The processes form their group where they were told to; server info tells another address."""
    address = f"127.0.0.1:{ports()}"
    sizes = ("--tp-size", 2, "--dp-size", 2, "--enable-dp-attention", "--nnodes", 2, "--dist-init-addr", address)
    leader, follower = [launch(*sizes, "--node-rank", rank, fault=fault) for rank in (0, 1)]
    reported = [server.ready().info()["dist_init_addr"] for server in (leader, follower)]
    assert (reported[0] == reported[1], reported[0] == address) == (same_as_leader, told)
    assert len(leader.generate(1, PROMPT)[0]) == 4
