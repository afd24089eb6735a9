"""`sidecar: {kind: openengine}` on the finished plan: flags of each engine, the sidecar's command, and what is refused."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from srtctl.plan.model import Plan
from tests.support import build, plan_of

TP: dict[str, dict[str, Any]] = {
    "sglang": {"tensor-parallel-size": 2},
    "vllm": {"tensor-parallel-size": 2},
    "trtllm": {"tensor_parallel_size": 2, "cache_transceiver_config": {"backend": "UCX"}},
}
OPENENGINE = {"kind": "openengine"}
SPLIT, WHOLE = ("prefill", "decode"), ("agg",)


def recipe(tmp_path: Path, engine: str, roles: tuple[str, ...] = WHOLE, **more: Any) -> Path:
    """`more` are further keys of each role, or of the recipe where a role has none such."""
    top = {key: more.pop(key) for key in ("dynamo", "frontend") if key in more}
    role = {"nodes": 1, "sidecar": OPENENGINE, "args": TP[engine] | more.pop("args", {})} | more
    data = {
        "schema": 2,
        "name": "oe",
        "model": {"path": "/models/m", "container": "c"},
        "resources": {"gpus_per_node": 2},
        "engine": engine,
        "roles": dict.fromkeys(roles, role),
    }
    path = tmp_path / "recipe.yaml"
    path.write_text(json.dumps(data | top))
    return path


def commands(plan: Plan) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Engine and sidecar of each worker."""
    leaders = [worker.processes[0] for worker in plan.workers]
    return [(p.argv, p.sidecar.argv) for p in leaders if p.sidecar]


def value(argv: tuple[str, ...], flag: str) -> str | None:
    return dict(pairwise(argv)).get(flag)


ROLE_FLAG = {
    "sglang": ("--disaggregation-mode", "prefill", "decode"),
    "trtllm": ("--server_role", "CONTEXT", "GENERATION"),
}


@pytest.mark.parametrize("roles", [WHOLE, SPLIT], ids=["agg", "disagg"])
@pytest.mark.parametrize("engine", TP)
def test_the_engine_serves_it_and_one_sidecar_fits_all(tmp_path: Path, engine: str, roles: tuple[str, ...]) -> None:
    plan = plan_of(recipe(tmp_path, engine, roles))
    assert plan.model.served_name == "/models/m"
    for number, (role, (argv, sidecar)) in enumerate(zip(roles, commands(plan), strict=True)):
        port = value(argv, "--port" if engine == "trtllm" else "--openengine-port")
        assert "--grpc-port" not in argv
        told = ("--disaggregation-mode", role) if role != "agg" else ()
        assert sidecar == (
            "dynamo-openengine-sidecar",
            *("--grpc-endpoint", f"127.0.0.1:{port}", "--model-path", "/models/m"),
            *told,
        )
        if engine != "trtllm":
            assert value(argv, "--openengine-host") == "0.0.0.0"
        if role != "agg" and engine in ROLE_FLAG:
            flag, *names = ROLE_FLAG[engine]
            assert value(argv, flag) == names[number]
        if role != "agg" and engine == "vllm":
            transfer = json.loads(value(argv, "--kv-transfer-config") or "")
            assert transfer["kv_role"] == ("kv_producer", "kv_consumer")[number]
        advertises = engine == "sglang" and role == "prefill"
        assert (value(argv, "--openengine-advertise-host") == "${NODE_ADDR[0]}") is advertises
        claimed = {(c.purpose, c.first) for c in plan.claims if c.owner == f"{role}-0.0"}
        assert ("grpc", int(port or 0)) in claimed
    targets = {check.name: [t.worker for t in check.targets] for check in plan.checks}
    assert targets["capabilities"] == [f"{role}-0" for role in roles]


def test_a_native_sidecar_has_no_capabilities_to_check_but_trtllms(tmp_path: Path) -> None:
    def checks(engine: str) -> set[str]:
        return {check.name for check in plan_of(recipe(tmp_path, engine, sidecar=True)).checks}

    assert ["capabilities" in checks(engine) for engine in TP] == [False, False, True]


@pytest.mark.parametrize("kind", ["native", "openengine"])
def test_a_binary_takes_the_place_of_the_program_alone(tmp_path: Path, kind: str) -> None:
    plain = commands(plan_of(recipe(tmp_path, "sglang", sidecar={"kind": kind})))[0][1]
    own = commands(plan_of(recipe(tmp_path, "sglang", sidecar={"kind": kind, "binary": "/opt/x"})))[0][1]
    default = recipe(tmp_path, "sglang", sidecar={"kind": kind}, dynamo={"sidecar_binary": "/opt/x"})
    assert own == commands(plan_of(default))[0][1] == ("/opt/x", *plain[plain.index("--grpc-endpoint") :])


def test_a_name_of_the_recipes_is_kept(tmp_path: Path) -> None:
    plan = plan_of(recipe(tmp_path, "vllm", args={"served-model-name": "mine"}))
    assert plan.model.served_name == "mine"


DP = {"tensor-parallel-size": 1, "data-parallel-size": 2}
#: Engine, changes of its role, path of the finding, words; whether a sidecar of the recipe's own may do it.
REFUSED: list[tuple[str, dict[str, Any], str, str, bool]] = [
    ("sglang", {"args": DP}, "sidecar.kind", "data parallel", True),
    ("vllm", {"args": DP}, "sidecar.kind", "data parallel", True),
    ("sglang", {"kv_events": True}, "kv_events", "never asks for KV events", True),
    ("vllm", {"kv_events": True}, "kv_events", "never asks for KV events", True),
    ("vllm", {"args": {"enable-lora": True}}, "args.enable-lora", "LoRA", True),
    ("sglang", {"args": {"enable-multimodal": True}}, "args.enable-multimodal", "multimodal", True),
    ("trtllm", {"args": {"lora_config": {"max_rank": 8}}}, "args.lora_config", "takes no LoRA adapters", False),
]


@pytest.mark.parametrize(("engine", "change", "path", "words", "own"), REFUSED, ids=[f"{r[0]} {r[2]}" for r in REFUSED])
def test_what_it_does_not_carry(
    tmp_path: Path, engine: str, change: dict[str, Any], path: str, words: str, own: bool
) -> None:
    [found] = [d for d in build(recipe(tmp_path, engine, **change)).diagnostics if d.severity == "error"]
    assert (found.code, found.path) == ("sidecar/openengine", f"roles.agg.{path}")
    assert words in found.message
    assert found.hint
    named = recipe(tmp_path, engine, **change, sidecar=OPENENGINE | {"binary": "/opt/x"})
    assert (build(named).plan is not None) is own


def test_a_followers_events_have_no_way_whatever_the_sidecar(tmp_path: Path) -> None:
    attention = {"tensor-parallel-size": 4, "data-parallel-size": 2, "enable-dp-attention": True}
    sidecar = OPENENGINE | {"binary": "/opt/x"}
    result = build(recipe(tmp_path, "sglang", nodes=2, args=attention, kv_events=True, sidecar=sidecar))
    [found] = [d for d in result.diagnostics if d.severity == "error"]
    assert "no telemetry mode" in found.message
