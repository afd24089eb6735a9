"""KV publishers in *discovered* mode: the recipe's endpoint has port 0, vLLM chooses, and nothing is claimed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from srtctl.plan.integrity import problems
from srtctl.plan.model import Plan, Publisher
from srtctl.plan.serial import plan_json, read_plan
from srtctl.plan.text import plan_text
from srtctl.render.bundle import bundle_files
from tests.support import build, plan_of


def recipe(tmp_path: Path, engine: str = "vllm", endpoint: str = "tcp://*:0", **role: Any) -> Path:
    """DP4 on two two-GPU nodes, its KV events at `endpoint`."""
    sizes: dict[str, Any] = {"data-parallel-size": 4}
    agg = {"nodes": 2, "gpus": 4, "kv_events": True, "sidecar": True, **role}
    data = {
        "schema": 2,
        "name": "discovered",
        "model": {"path": "/models/m", "container": "c"},
        "resources": {"gpus_per_node": 2},
        "engine": engine,
        "roles": {"agg": {"args": {**sizes, "kv-events-config": {"endpoint": endpoint}}, **agg}},
    }
    path = tmp_path / "recipe.yaml"
    path.write_text(json.dumps(data))
    return path


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return plan_of(recipe(tmp_path))


def test_the_plan_claims_no_port_and_knows_the_ranks(plan: Plan) -> None:
    [worker] = plan.workers
    assert [[(q.dp_rank, q.port) for q in p.publishers] for p in worker.processes] == [
        [(0, 0), (1, 0)],
        [(2, 0), (3, 0)],
    ]
    assert "kv_events" not in {claim.purpose for claim in plan.claims}
    for process in worker.processes:
        config = json.loads(process.argv[process.argv.index("--kv-events-config") + 1])
        assert config["endpoint"] == "tcp://*:0"
        assert config["enable_kv_cache_events"] is True
    [check] = [check for check in plan.checks if check.name == "publishers"]
    assert [target.dp_rank for target in check.targets] == [0, 1, 2, 3]


def test_it_is_shown_in_words(plan: Plan) -> None:
    assert "publishes KV events of ranks 0-1 on ports of its choice" in plan_text(plan)
    assert "serves; publishes rank 0 on a port of its choice" in bundle_files(plan, "/run", "")["workers/agg-0.sh"]


def test_a_saved_plan_keeps_it(plan: Plan) -> None:
    assert read_plan(plan_json(plan), "p.json") == plan
    assert problems(plan) == []
    worker = plan.workers[0]
    elsewhere = replace(worker.processes[0], publishers=(Publisher(0, 1),))
    broken = replace(plan, workers=(replace(worker, processes=(elsewhere, worker.processes[1])),))
    assert any("nothing claims" in found.message for found in problems(broken))


def test_a_fixed_endpoint_is_claimed(tmp_path: Path) -> None:
    plan = plan_of(recipe(tmp_path, endpoint="tcp://*:5700"))
    assert {(c.first, c.count) for c in plan.claims if c.purpose == "kv_events"} == {(5700, 4)}


@pytest.mark.parametrize(("engine", "role"), [("vllm", {"sidecar": False}), ("sglang", {"nodes": 1, "gpus": 4})])
def test_where_nobody_would_learn_the_port(tmp_path: Path, engine: str, role: dict[str, Any]) -> None:
    result = build(recipe(tmp_path, engine, **role))
    assert result.plan is None
    found = [(d.code, d.path) for d in result.diagnostics if d.severity == "error"]
    assert ("args/kv-events-port", "roles.agg.args.kv-events-config") in found
