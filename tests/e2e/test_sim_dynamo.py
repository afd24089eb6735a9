"""The simulated SGLang against the real Dynamo: aggregated, and prefill/decode.

Dynamo is the independent witness that the simulator speaks the protocol. Needs the sandbox's stack environment
and etcd. As root everything runs in a network namespace of its own, because Dynamo's event sockets listen
on all addresses.
"""

from __future__ import annotations

import re
import time
import uuid
from typing import Any

import pytest

from tests.e2e.sim_stack import BLOCK, Stack

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("private_network")]

ORDINARY = ("--dp-size", 2)
ATTENTION = ("--tp-size", 2, "--dp-size", 2, "--enable-dp-attention")


def hits(stack: Stack, expected: dict[str, int], **pin: int) -> bool:
    """Whether the router learns of a new prompt, pinned to a worker and a rank, that `expected` answers it.

    A new prompt a try: what is published before the relay has subscribed is lost, and nothing tells when it has.
    """
    prompt = f"{uuid.uuid4().hex} for {pin}. " * 4
    cold = stack.chat(prompt, **pin)
    assert expected.items() <= cold["nvext"]["worker_id"].items()
    assert cold["choices"][0]["message"]["content"].startswith(f"r{expected['decode_dp_rank']}a")
    assert cold["nvext"]["timing"]["kv_hit_rate"] == 0
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        warm = stack.chat(prompt, **pin)
        if warm["nvext"]["timing"]["kv_hit_rate"] > 0:
            # Where the cache is, the unpinned request goes
            found = stack.chat(prompt)["nvext"]["worker_id"]
            rank = "prefill_dp_rank"
            return bool(found[rank] == expected[rank])
        time.sleep(0.1)
    return False


def legs(log: str, leg: str) -> dict[str, dict[str, str]]:
    """What an engine wrote about each request, by request id."""
    lines = re.findall(rf"{leg}: (rid=.*)", log)
    found = [dict(word.split("=", 1) for word in line.split()) for line in lines]
    return {facts["rid"]: facts for facts in found}


def test_requests_reach_every_rank_and_the_router_learns_from_both_nodes(stack: Stack) -> None:
    stack.engine("engine", *ATTENTION, nodes=2)
    worker = stack.until("the model is listed", stack.workers)["aggregated"]
    stack.until("the follower relays", lambda: "publishing local KV events" in stack.log("engine-sidecar-1"))
    sources = stack.discovery("v1/event_sources/").values()
    assert sorted(source["metadata"]["worker"]["dp_rank"] for source in sources) == [0, 1]
    for rank in (0, 1):
        expected = {"decode_worker_id": worker, "prefill_dp_rank": rank, "decode_dp_rank": rank}
        pin = {"backend_instance_id": worker, "dp_rank": rank}
        stack.until(f"the router knows what rank {rank} has cached", lambda e=expected, p=pin: hits(stack, e, **p))
    prompt = "again and again, " * 8
    again = [stack.chat(prompt, **pin)["usage"]["prompt_tokens_details"]["cached_tokens"] for _ in range(2)]
    assert again[1] >= len(prompt) - BLOCK
    assert {facts["dp_rank"] for facts in legs(stack.log("engine-0"), "Prefill").values()} == {"0", "1"}
    assert "Prefill" not in stack.log("engine-1")
    codes = stack.stop()
    assert codes["engine-0"] == codes["engine-1"] == 0, codes


@pytest.mark.parametrize(("sizes", "nodes"), [(ORDINARY, 1), (ATTENTION, 2)], ids=["ordinary", "attention"])
def test_both_legs_of_every_request_meet(stack: Stack, sizes: tuple[Any, ...], nodes: int) -> None:
    stack.engine("prefill", *sizes, nodes=nodes, role="prefill")
    stack.engine("decode", *sizes, nodes=nodes, role="decode")
    workers = stack.until("both are registered", lambda: len(stack.workers()) == 2 and stack.workers())
    if nodes == 2:
        stack.until("the follower relays", lambda: "publishing local KV events" in stack.log("prefill-sidecar-1"))
    worker = {"prefill_worker_id": workers["prefill"], "decode_worker_id": workers["decode"]}
    for prefill, decode in ((0, 1), (1, 0)):
        expected = {**worker, "prefill_dp_rank": prefill, "decode_dp_rank": decode}
        pin = {**worker, "prefill_dp_rank": prefill, "dp_rank": decode}
        what = f"the router knows what prefill rank {prefill} has cached"
        stack.until(what, lambda e=expected, p=pin: hits(stack, e, **p))
    rids = {stack.chat(uuid.uuid4().hex)["id"].removeprefix("chatcmpl-") for _ in range(8)}

    prefilled, decoded = legs(stack.log("prefill-0"), "Prefill"), legs(stack.log("decode-0"), "Decode")
    assert rids <= prefilled.keys() == decoded.keys()
    for rid, given in prefilled.items():
        taken = decoded[rid]
        assert (taken["room"], taken["kv_from"]) == (given["room"], given["bootstrap"])
        assert taken["prefill_dp_rank"] == given["dp_rank"] == str(int(given["room"]) % 2)
    assert {facts["dp_rank"] for facts in prefilled.values()} == {"0", "1"}
    codes = stack.stop()
    assert {codes[f"{role}-{rank}"] for role in ("prefill", "decode") for rank in range(nodes)} == {0}, codes


def test_ordinary_dp_prefill_fails_the_first_request_to_rank_1(stack: Stack) -> None:
    stack.engine("prefill", *ORDINARY, role="prefill", fault="ordinary_dp_bootstrap")
    stack.engine("decode", *ORDINARY, role="decode")
    workers = stack.until("both are registered", lambda: len(stack.workers()) == 2 and stack.workers())
    pin = {"prefill_worker_id": workers["prefill"], "decode_worker_id": workers["decode"], "dp_rank": 0}
    stack.until("rank 0 answers", lambda: stack.ask("hello", **pin, prefill_dp_rank=0)[0] == 200)
    status, answer = stack.ask("hello", **pin, prefill_dp_rank=1)
    assert status == 500, answer
    assert "dispatched to dp_rank 0 but bootstrap_room" in stack.log("prefill-0")


def test_an_engine_that_reports_dp_size_1_makes_the_follower_sidecar_exit(stack: Stack) -> None:
    stack.engine("engine", *ATTENTION, nodes=2, fault="report_dp_size=1")
    follower = stack.processes["engine-sidecar-1"]
    stack.until("the follower's sidecar ends", lambda: follower.poll() is not None)
    assert follower.returncode == 1
    assert "KV source rank 1 is outside dp_size 1" in stack.log("engine-sidecar-1")
    assert stack.processes["engine-1"].poll() is None


def test_an_engine_without_kv_event_sources_is_too_old_for_a_follower_sidecar(stack: Stack) -> None:
    stack.engine("engine", *ATTENTION, nodes=2, fault="no_sources@1")
    follower = stack.processes["engine-sidecar-1"]
    stack.until("the follower's sidecar ends", lambda: follower.poll() is not None)
    too_old = "telemetry-only mode requires GetServerInfo.kv_event_sources; upgrade SGLang"
    assert too_old in stack.log("engine-sidecar-1")
