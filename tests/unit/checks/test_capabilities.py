"""Check `capabilities`: what an engine says over OpenEngine, read from a real server, against the plan."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from srtctl.backends.openengine import LORA, MULTIMODAL
from srtctl.checks import capabilities, openengine, plan_workers
from srtctl.checks.context import Context, Limits
from srtctl.checks.deployment import Deployment
from srtctl.checks.grpc_call import UnaskableError
from srtctl.checks.model import FAIL, PASS, SKIP, Target
from srtctl.checks.net import Deadline, NetError
from srtctl.checks.openengine import Said, Server, Source
from srtctl.checks.plan_file import load
from srtctl.sim.faults import Faults
from srtctl.sim.grpc_listener import GrpcListener
from srtctl.sim.openengine.engine import EventSource, Facts, Handoff
from srtctl.sim.openengine.schema import CONTROL, MESSAGES
from srtctl.sim.openengine.server import OpenEngineServer
from srtctl.sim.protobuf import service

from .scenario import agg_plan, pd_plan

SERVER = Server("sglang", "1", "agg", 1, 1, False, "", "")
SAID = Said(SERVER, ("tiny",), lora=False, multimodal=False)
HANDS = replace(SERVER, role="prefill", handoff=True, backend="nixl", profile="a.v1")


class Quiet:
    """An engine that nobody sends requests to."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    def open_sessions(self) -> int:
        return 0


@contextmanager
def listening(facts: Facts, *, served: bool = True) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    with OpenEngineServer("127.0.0.1", port, Quiet(facts), Faults(), lambda: True, served=served):  # type: ignore[arg-type]
        yield port


def test_everything_is_read_from_the_wire() -> None:
    sources = (EventSource(300, "10.0.0.1", 5500, "kv"), EventSource(1, "10.0.0.1", 5201, "kv", "nats"))
    handoff = Handoff("mooncake", "sglang.bootstrap.v1", "tcp", "10.0.0.1", 8998)
    long = "/models/" + "m" * 200  # a length of more than one byte
    facts = Facts("sglang", "2", "prefill", long, "mine", 100, ("other",), handoff=handoff, sources=sources, lora=True)
    with listening(facts) as port:
        said = openengine.ask("127.0.0.1", port, 5)
    assert said == Said(
        server=Server(
            engine="sglang",
            version="2",
            role="prefill",
            revision=1,
            minimum_client=1,
            handoff=True,
            backend="mooncake",
            profile="sglang.bootstrap.v1",
        ),
        names=("mine", "other", long),
        lora=True,
        multimodal=False,
        sources=(Source(300, "zmq", 5500), Source(1, "nats", 5201)),
    )


def test_a_server_without_discovery_leaves_it_open_and_a_closed_port_does_not() -> None:
    with (
        listening(Facts("x", "1", "agg", "/m", "m", 1), served=False) as port,
        pytest.raises(UnaskableError, match="no GetModelInfo"),
    ):
        openengine.ask("127.0.0.1", port, 5)
    with pytest.raises(NetError, match=f"127.0.0.1:{port} GetServerInfo: UNAVAILABLE"):
        openengine.ask("127.0.0.1", port, 5)


@contextmanager
def old_server(name: str) -> Iterator[int]:
    """One that knows GetModelInfo alone, as ai-dynamo 1.6.1 needs no more of TensorRT-LLM."""

    def model_info(asked: Any, _: object) -> Any:
        assert asked.model == "tiny"
        return MESSAGES["ModelInfo"](served_model_name=name, supports_lora=False)

    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    listener = GrpcListener("127.0.0.1", port, (service(CONTROL, MESSAGES, {"GetModelInfo": model_info}),))
    try:
        yield port
    finally:
        listener.close()


def deployment(tmp_path: Path, plan: Any, port: int = 0) -> Deployment:
    """The plan with every leader's OpenEngine on loopback `port`."""
    for worker in plan["workers"]:
        leader = worker["processes"][0]
        leader["ready_port"] = port
        plan["claims"].append(
            {"node": leader["node"], "first": port, "count": 1, "purpose": "grpc", "owner": leader["name"]}
        )
    plan["checks"] = []
    env = {"DYN_DISCOVERY_BACKEND": "etcd", "ETCD_ENDPOINTS": "http://127.0.0.1:1"}
    plan["frontends"][0] |= {"env": env, "port": 1, "name": "frontend-0"}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    (tmp_path / "nodes.tsv").write_text("".join(f"{node}\tn{node}\t127.0.0.1\n" for node in range(3)))
    return load(tmp_path / "plan.json", tmp_path / "nodes.tsv")


WRONG: list[tuple[Said, str]] = [
    (
        Said(replace(SERVER, revision=0), ("tiny",), None, None),
        "schema revision 0, for clients from revision 1; the sidecar has revision 1",
    ),
    (
        Said(replace(SERVER, revision=4, minimum_client=2), ("tiny",), None, None),
        "schema revision 4, for clients from revision 2",
    ),
    (
        Said(replace(SERVER, role="unspecified"), ("tiny",), None, None),
        "reports role unspecified, the plan has it as agg",
    ),
    (replace(SAID, names=("a", "b")), "serves model a, b, the plan serves tiny"),
    (SAID, "no source of KV events for rank 0, the plan has one on port 5200"),
    (replace(SAID, sources=(Source(0, "nats", 5200), Source(1, "zmq", 5201))), "rank 0 by nats, the plan by zmq"),
    (replace(SAID, sources=(Source(0, "zmq", 5200), Source(1, "zmq", 1))), "rank 1 on port 1, the plan on port 5201"),
]


@pytest.mark.parametrize(("said", "words"), WRONG, ids=[row[1][:40] for row in WRONG])
def test_what_does_not_fit(tmp_path: Path, said: Said, words: str) -> None:
    plan = deployment(tmp_path, agg_plan())
    worker = plan.worker("agg-0")
    assert words in next(capabilities.complaints(plan, worker, worker.processes[0], said, {}))


def test_newer_servers_that_still_take_this_client_are_fine(tmp_path: Path) -> None:
    plan = deployment(tmp_path, agg_plan())
    sources = (Source(0, "zmq", 5200), Source(1, "zmq", 5201))
    said = replace(SAID, server=replace(SERVER, revision=9), sources=sources)
    worker = plan.worker("agg-0")
    assert list(capabilities.complaints(plan, worker, worker.processes[0], said, {})) == []


@pytest.mark.parametrize("feature", ["lora", "multimodal"])
def test_what_the_flags_ask_for(tmp_path: Path, feature: str) -> None:
    plan = agg_plan()
    plan["workers"][0]["processes"][0]["argv"].append(f"--enable-{feature}")
    found = deployment(tmp_path, plan)
    worker = replace(found.worker("agg-0"), publishers={})
    [text] = capabilities.complaints(found, worker, worker.processes[0], SAID, {})
    assert f"reports no {feature} support" in text
    has = replace(SAID, **{feature: True})
    assert list(capabilities.complaints(found, worker, worker.processes[0], has, {})) == []


def test_the_flags_that_ask_for_them_are_those_that_planning_knows() -> None:
    for feature, by_engine in (("lora", LORA), ("multimodal", MULTIMODAL)):
        flags = {f"--{flag}" for engine, names in by_engine.items() if engine != "trtllm" for flag in names}
        assert plan_workers._FEATURES[feature] == flags  # TensorRT-LLM's stand in its file, and are refused


HANDOFFS: list[tuple[Server, Server, str]] = [
    (replace(HANDS, handoff=False), HANDS, "reports no KV handoff, so as prefill"),
    (
        HANDS,
        replace(HANDS, role="decode", profile="b.v1"),
        "hands KV caches over as a.v1 by nixl, decode-0 as b.v1 by nixl",
    ),
    (HANDS, replace(HANDS, role="decode", backend="ucx"), "as a.v1 by nixl, decode-0 as a.v1 by ucx"),
    (HANDS, replace(HANDS, role="decode"), ""),
]


@pytest.mark.parametrize(("prefill", "decode", "words"), HANDOFFS, ids=[row[2][:30] or "alike" for row in HANDOFFS])
def test_both_sides_must_read_the_same_sessions(tmp_path: Path, prefill: Server, decode: Server, words: str) -> None:
    plan = deployment(tmp_path, pd_plan())
    worker = replace(plan.worker("prefill-0"), publishers={})
    said, all_of_them = replace(SAID, server=prefill), {"prefill-0": [prefill], "decode-0": [decode]}
    found = list(capabilities.complaints(plan, worker, worker.processes[0], said, all_of_them))
    assert found == [] if not words else words in found[0]


def checked(plan: Deployment) -> Any:
    context = Context(plan, Limits(), Deadline.after(10))
    return capabilities.run(context, [Target("agg-0")]).results[0]


def test_each_engine_is_asked(tmp_path: Path) -> None:
    sources = tuple(EventSource(rank, "127.0.0.1", 5200 + rank, "kv-events") for rank in (0, 1))
    facts = Facts("sglang", "1", "agg", "/models/tiny", "tiny", 100, sources=sources)
    with listening(facts) as port:
        result = checked(deployment(tmp_path, agg_plan(), port))
    assert result.verdict == PASS
    assert list(result.evidence) == ["agg-0.0"]
    said: Any = result.evidence["agg-0.0"]
    assert (said["names"], said["role"], said["schema_revision"]) == (["tiny", "/models/tiny"], "agg", 1)
    assert checked(deployment(tmp_path, agg_plan(), port)).verdict == FAIL
    with listening(replace(facts, role="decode")) as port:
        result = checked(deployment(tmp_path, agg_plan(), port))
    assert (result.verdict, result.message) == (FAIL, "agg-0: reports role decode, the plan has it as agg")
    with listening(facts, served=False) as port:
        assert checked(deployment(tmp_path, agg_plan(), port)).verdict == SKIP


def test_a_server_without_server_info_is_compared_as_far_as_it_tells(tmp_path: Path) -> None:
    plan = agg_plan()
    for process in plan["workers"][0]["processes"]:
        process["publishers"] = []
    with old_server("tiny") as port:
        result = checked(deployment(tmp_path, plan, port))
    assert result.verdict == SKIP
    assert "has no GetServerInfo" in result.message
    assert result.evidence["agg-0.0"]["names"] == ["tiny"]
    with old_server("other") as port:
        result = checked(deployment(tmp_path, plan, port))
    assert (result.verdict, result.message) == (FAIL, "agg-0: serves model other, the plan serves tiny")


def test_every_process_that_serves_is_asked_for_its_own_ranks(tmp_path: Path) -> None:
    """As with hybrid DP: each node serves and publishes its own ranks."""

    def both(second: int) -> Any:
        plan = agg_plan()
        first, other = plan["workers"][0]["processes"]
        first["serves"], other["serves"] = [0], [1]
        other["ready_port"] = second
        plan["claims"].append(
            {"node": other["node"], "first": second, "count": 1, "purpose": "grpc", "owner": other["name"]}
        )
        return plan

    zero, one = (EventSource(rank, "127.0.0.1", 5200 + rank, "kv-events") for rank in (0, 1))
    facts = Facts("vllm", "1", "agg", "/models/tiny", "tiny", 100)
    with listening(replace(facts, sources=(zero,))) as port:
        with listening(replace(facts, sources=(one,))) as other:
            result = checked(deployment(tmp_path, both(other), port))
            assert (result.verdict, list(result.evidence)) == (PASS, ["agg-0.0", "agg-0.1"])
        with listening(facts) as other:
            result = checked(deployment(tmp_path, both(other), port))
            assert "no source of KV events for rank 1" in result.message
        with listening(replace(facts, sources=(one,), role="decode")) as other:
            assert "reports role decode" in checked(deployment(tmp_path, both(other), port)).message
