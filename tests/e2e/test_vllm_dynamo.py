"""The simulated vLLM against the real Dynamo and its vLLM sidecar: aggregated DP with KV events, and prefill/decode.

As in test_sim_dynamo, Dynamo is the independent witness that the simulator speaks the protocol.
"""

from __future__ import annotations

import json

import pytest

from tests.e2e.sim_stack import BLOCK, PYTHON, Stack
from tests.e2e.test_sim_dynamo import hits, legs

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("private_network")]

DP2 = ("--data-parallel-size", 2)
NIXL = ("--kv-transfer-config", '{"kv_connector":"NixlConnector","kv_role":"kv_both"}')
TOPIC = "kv-events"


def engine(
    stack: Stack, name: str, *flags: object, events: bool = True, role: str = "", nixl: int | None = None
) -> None:
    """A vLLM process with its sidecar; `events`: with KV publishers on ports of their choice; `nixl`: the first port of
    its side channels."""
    grpc = next(stack.ports)
    argv: list[object] = [PYTHON, "-m", "vllm.entrypoints.cli.main", "serve", stack.image / "model", *flags]
    argv += ["--served-model-name", "tiny", "--block-size", BLOCK, "--port", next(stack.ports), "--grpc-port", grpc]
    if events:
        config = {"enable_kv_cache_events": True, "publisher": "zmq", "topic": TOPIC, "endpoint": "tcp://*:0"}
        argv += ["--kv-events-config", json.dumps(config)]
    environment = {"VLLM_USE_RUST_FRONTEND": "1"}
    if nixl is not None:
        environment |= {"VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1", "VLLM_NIXL_SIDE_CHANNEL_PORT": str(nixl)}
    stack.start(name, *argv, **environment)
    sidecar: list[object] = [PYTHON, "-m", "dynamo.vllm.sidecar", "--grpc-endpoint", f"127.0.0.1:{grpc}"]
    sidecar += ["--disaggregation-mode", role] if role else []
    stack.start(f"{name}-sidecar", *sidecar, DYN_SYSTEM_PORT=str(next(stack.ports)))


def test_requests_reach_both_ranks_and_the_router_learns_from_each(stack: Stack) -> None:
    engine(stack, "engine", *DP2)
    worker = stack.until("the model is listed", stack.workers)["aggregated"]
    sources = stack.discovery("v1/event_sources/").values()
    assert sorted(source["metadata"]["worker"]["dp_rank"] for source in sources) == [0, 1]
    for rank in (0, 1):
        expected = {"decode_worker_id": worker, "prefill_dp_rank": rank, "decode_dp_rank": rank}
        pin = {"backend_instance_id": worker, "dp_rank": rank}
        stack.until(f"the router knows what rank {rank} has cached", lambda e=expected, p=pin: hits(stack, e, **p))
    answer = stack.chat("one more")
    assert answer["usage"]["completion_tokens"] == 8
    assert answer["choices"][0]["finish_reason"] == "length"
    assert stack.stop()["engine"] == 0


def test_hybrid_nodes_register_one_worker_each(stack: Stack) -> None:
    """A node has the ranks of its own, and a registration of its own, under one engine."""
    meeting = ("--data-parallel-address", "127.0.0.1", "--data-parallel-rpc-port", next(stack.ports))
    spread = (*DP2, "--data-parallel-size-local", 1, "--data-parallel-hybrid-lb", *meeting)
    for rank in (0, 1):
        engine(stack, f"node-{rank}", *spread, "--data-parallel-start-rank", rank)
    stack.until("both nodes are registered", lambda: len(stack.discovery("v1/mdc/")) == 2)
    cards = stack.discovery("v1/mdc/").values()
    configs = [card["card_json"]["runtime_config"] for card in cards]
    found = sorted((config["data_parallel_start_rank"], config["data_parallel_size"]) for config in configs)
    assert found == [(0, 1), (1, 1)]
    ids = {card["card_json"]["runtime_config"]["data_parallel_start_rank"]: int(card["instance_id"]) for card in cards}
    for rank, worker in ids.items():
        expected = {"decode_worker_id": worker, "prefill_dp_rank": rank, "decode_dp_rank": rank}
        pin = {"backend_instance_id": worker, "dp_rank": rank}
        stack.until(f"the frontend knows node {rank}", lambda p=pin: stack.ask("hello", **p)[0] == 200)
        stack.until(f"the router knows what node {rank} has cached", lambda e=expected, p=pin: hits(stack, e, **p))


def test_prefill_hands_its_blocks_to_decode(stack: Stack) -> None:
    ports = [next(stack.ports) for _ in range(4)]
    engine(stack, "prefill", *DP2, *NIXL, role="prefill", nixl=ports[0])
    engine(stack, "decode", *DP2, *NIXL, events=False, role="decode", nixl=ports[2])
    stack.until("both are registered", lambda: len(stack.workers()) == 2)
    stack.until("a request is answered", lambda: stack.ask("hello")[0] == 200)
    rids = {stack.chat(f"request {n} " * 8)["id"].removeprefix("chatcmpl-") for n in range(8)}

    prefilled, decoded = legs(stack.log("prefill"), "Prefill"), legs(stack.log("decode"), "Decode")
    assert rids <= prefilled.keys()
    assert rids <= decoded.keys()
    for rid in rids:
        given, taken = prefilled[rid], decoded[rid]
        assert taken["kv_from"] == given["kv_at"] == f"127.0.0.1:{ports[int(given['dp_rank'])]}"
        assert int(taken["blocks"]) == -(-int(given["prompt_tokens"]) // BLOCK)
