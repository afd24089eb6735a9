"""Dynamo's mocker on the finished plan: one process a worker that registers itself; and what it cannot do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from srtctl.plan.model import Process
from srtctl.render.bundle import bundle_files
from tests.support import build, plan_of

AGG = {"nodes": 1, "workers": 2, "gpus": 1, "kv_events": True, "args": {"model-name": "m", "data_parallel_size": 2}}
PD = {"prefill": AGG, "decode": {**AGG, "kv_events": False}}


def recipe(tmp_path: Path, roles: dict[str, Any], **more: Any) -> Path:
    """A mocker on two-GPU nodes; `more` are further keys."""
    data = {
        "schema": 2,
        "name": "mocker",
        "model": {"path": "/models/m", "container": "c"},
        "resources": {"gpus_per_node": 2},
        "engine": "mocker",
        "roles": roles,
    }
    path = tmp_path / "recipe.yaml"
    path.write_text(json.dumps(data | more))
    return path


def value(process: Process, flag: str) -> str | None:
    return dict(zip(process.argv, process.argv[1:], strict=False)).get(flag)


def test_a_worker_is_one_process_that_registers_its_ranks(tmp_path: Path) -> None:
    plan = plan_of(recipe(tmp_path, {"agg": AGG}, engine={"type": "mocker", "speedup_ratio": 0, "engine_type": "vllm"}))
    processes = [process for worker in plan.workers for process in worker.processes]
    assert [process.name for process in processes] == ["agg-0.0", "agg-1.0"]
    for process in processes:
        assert process.argv[:3] == ("python3", "-m", "dynamo.mocker")
        assert (process.serves, process.sidecar) == ((0, 1), None)
        assert (value(process, "--speedup-ratio"), value(process, "--engine-type")) == ("0", "vllm")
        assert str(process.ready_port) == process.env["DYN_SYSTEM_PORT"]
        base = int(value(process, "--zmq-kv-events-ports") or 0)
        assert [(p.dp_rank, p.port) for p in process.publishers] == [(0, base), (1, base + 1)]
    names = ("placement", "registration", "rank_routing", "publishers", "kv_events", "cache_reuse", "load")
    assert tuple(check.name for check in plan.checks) == names


def test_what_listens_on_the_nodes_own_address_is_waited_for_there(tmp_path: Path) -> None:
    """Dynamo's status server binds DYN_SYSTEM_HOST alone."""
    script = bundle_files(plan_of(recipe(tmp_path, {"agg": AGG})), "/run", "")["workers/agg-0.sh"]
    assert 'supervise agg-0.0 "${NODE_ADDR[0]}:7500" engine' in script


def test_prefill_and_decode(tmp_path: Path) -> None:
    plan = plan_of(recipe(tmp_path, PD))
    leaders = {worker.name: worker.processes[0] for worker in plan.workers}
    assert {name: value(p, "--disaggregation-mode") for name, p in leaders.items()} == {
        "prefill-0": "prefill", "prefill-1": "prefill", "decode-0": "decode", "decode-1": "decode"
    }  # fmt: skip
    ports = [value(p, "--bootstrap-ports") for p in leaders.values()]
    assert len(set(ports[:2])) == 2
    assert ports[2:] == [None, None]
    assert {check.name for check in plan.checks} >= {"kv_events", "transfer"}


def test_a_knob_gives_way_to_a_roles_flag(tmp_path: Path) -> None:
    role = {**AGG, "args": {"speedup-ratio": 5}}
    [process] = plan_of(recipe(tmp_path, {"agg": {**role, "workers": 1}}, engine={"type": "mocker", "speedup_ratio": 9})
                        ).workers[0].processes  # fmt: skip
    assert process.argv.count("--speedup-ratio") == 1
    assert value(process, "--speedup-ratio") == "5"
    assert value(process, "--model-name") == "/models/m"


FAULTS = [
    ("mocker/nodes", {"agg": {**AGG, "nodes": 2, "workers": 1, "gpus": 4}}, {}),
    ("mocker/sidecar", {"agg": {**AGG, "sidecar": True}}, {}),
    ("mocker/frontend", {"agg": AGG}, {"frontend": {"type": "none"}}),
    ("mocker/kv-events", {"agg": {**AGG, "kv_events": {"topic": "mine"}}}, {}),
    ("mocker/kv-events", {**PD, "decode": AGG}, {}),
    ("mocker/no-prefix-cache", {"agg": {**AGG, "args": {"no-enable-prefix-caching": True}}}, {}),
    ("mocker/owned-flag", {"agg": {**AGG, "args": {"num-workers": 4}}}, {}),
    ("mocker/role", {"agg": {**AGG, "args": {"disaggregation-mode": "decode"}}}, {}),
    ("mocker/model-name", {**PD, "decode": {**PD["decode"], "args": {"model-name": "other"}}}, {}),
    ("recipe/unknown-key", {"agg": AGG}, {"engine": {"type": "mocker", "speedup": 2}}),
    ("args/size", {"agg": {**AGG, "args": {"data-parallel-size": 0}}}, {}),
]


@pytest.mark.parametrize(("code", "roles", "more"), FAULTS)
def test_what_it_cannot_do(tmp_path: Path, code: str, roles: dict[str, Any], more: dict[str, Any]) -> None:
    found = [item for item in build(recipe(tmp_path, roles, **more)).diagnostics if item.severity == "error"]
    assert [item.code for item in found] == [code]
    assert found[0].hint
    assert found[0].span
