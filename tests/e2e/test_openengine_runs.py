"""`sidecar: {kind: openengine}` on the sandbox: every engine, aggregated and prefill/decode, with every check that applies;
and each way in which an engine's own word differs from the plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Sandbox, wait_until
from tests.openengine_client import Client, token_count

pytestmark = pytest.mark.e2e

ARGS: dict[str, dict[str, Any]] = {
    "sglang": {"tensor-parallel-size": 2},
    "vllm": {"tensor-parallel-size": 2},
    "trtllm": {"tensor_parallel_size": 2, "max_seq_len": 8192, "cache_transceiver_config": {"backend": "UCX"}},
}
SPLIT, WHOLE = ("prefill", "decode"), ("agg",)
LONG, LENGTH, GRACE = 2000, 2, 20
"""Tokens of a request that runs for seconds, the wire's word for having generated them all, and STOP_GRACE in seconds."""


def recipe(folder: Path, engine: str, roles: tuple[str, ...], **more: Any) -> Path:
    """`more` are further arguments of the engine."""
    role = {"nodes": 1, "workers": 1, "sidecar": {"kind": "openengine"}, "args": ARGS[engine] | more}
    data = {
        "schema": 2,
        "name": f"openengine-{engine}-{len(roles)}",
        "model": {"path": "qwen3-0.6b", "container": engine},
        "resources": {"gpus_per_node": 2},
        "engine": engine,
        "roles": dict.fromkeys(roles, role),
        "frontend": {"type": "dynamo", "args": {"router-mode": "kv"}},
    }
    path = folder / "recipe.yaml"
    path.write_text(json.dumps(data))
    return path


@pytest.mark.parametrize("roles", [WHOLE, SPLIT], ids=["agg", "disagg"])
@pytest.mark.parametrize("engine", ARGS)
def test_it_serves_and_proves_it(sandbox: Sandbox, tmp_path: Path, engine: str, roles: tuple[str, ...]) -> None:
    run = sandbox.apply(recipe(tmp_path, engine, roles))["run"]
    try:
        checks = {c["name"]: c for c in json.loads((sandbox.run_dir(run) / "checks.json").read_text())["checks"]}
        assert {check["verdict"] for check in checks.values()} == {"pass"}
        assert [target["worker"] for target in checks["capabilities"]["targets"]] == [f"{role}-0" for role in roles]
        assert ("transfer" in checks) == (roles == SPLIT)
    finally:
        sandbox.cli("cancel", run, "--wait")


@pytest.mark.parametrize("engine", ARGS)
def test_a_stopped_run_lets_admitted_streams_end(sandbox: Sandbox, tmp_path: Path, engine: str) -> None:
    """A client that talks to the engine itself, as Dynamo's sidecar does, gets every token, however the job ends."""
    run = sandbox.apply(recipe(tmp_path, engine, WHOLE))["run"]
    plan = json.loads((sandbox.run_dir(run) / "plan.json").read_text())
    [port] = [claim["first"] for claim in plan["claims"] if claim["purpose"] == "grpc"]
    address = (sandbox.run_dir(run) / "state/nodes.tsv").read_text().split()[2]
    with Client(f"{address}:{port}") as client:
        stream = client.generate("r1", 20, LONG)
        next(stream)
        sandbox.cli("cancel", run)
        answers = list(stream)
    assert token_count(answers) == LONG - 1
    assert answers[-1].finished.reason == LENGTH
    wait_until("its end", lambda: sandbox.cli.json("status", run)["phase"] == "ended")
    status = sandbox.cli.json("status", run)
    [stopped] = [part for part in status["parts"] if part["part"] == "engine"]
    assert (stopped["state"], stopped["code"]) == ("stopped", 0)
    assert 0 < stopped["stop_seconds"] < GRACE
    assert sandbox.left_over(status["job_id"]) == []


#: Engine, its roles, what it says falsely, further arguments; then the failed target and words of the diagnosis.
LIES = [
    ("trtllm", WHOLE, "revision:0", {}, "agg-0", ("speaks OpenEngine revision 0", "sidecar.kind: native")),
    ("sglang", WHOLE, "minimum_client:9", {}, "agg-0", ("takes clients from revision 9", "has revision 1")),
    ("vllm", WHOLE, "role:decode", {}, "agg-0", ("says that its role is decode, it was planned as agg",)),
    ("sglang", WHOLE, "served_name:other", {"served-model-name": "mine"}, "agg-0", ("answers to other",)),
]


@pytest.mark.parametrize(("engine", "roles", "lie", "more", "target", "words"), LIES, ids=[row[2] for row in LIES])
def test_an_engine_that_is_not_what_the_plan_needs_is_named(
    sandbox: Sandbox,
    tmp_path: Path,
    engine: str,
    roles: tuple[str, ...],
    lie: str,
    more: dict[str, Any],
    target: str,
    words: tuple[str, ...],
) -> None:
    short = ("--set", "health_check.max_attempts=6", "--set", "health_check.interval_seconds=1")
    path = recipe(tmp_path, engine, roles, **more)
    status = sandbox.apply(path, *short, code=3, SRTCTL_SIM_FAULT=f"openengine={lie}")
    assert status["outcome"] == "checks_failed"
    checks = json.loads((sandbox.run_dir(status["run"]) / "checks.json").read_text())["checks"]
    failed = {
        c["name"]: [t["worker"] for t in c["targets"] if t["verdict"] == "fail"]
        for c in checks
        if c["verdict"] == "fail"
    }
    assert failed == {"capabilities": [target]}
    assert status["diagnosis"], checks
    told = f"{status['diagnosis']['cause']} {status['diagnosis']['remedy']}"
    assert all(word in told for word in words), told
