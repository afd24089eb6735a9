"""vLLM's layouts on the finished plan: who runs which ranks, who registers, which ports; and the layouts that cannot run."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from srtctl.plan.model import Plan, Process
from srtctl.render.bundle import bundle_files
from tests.support import build, plan_of

GPUS = 4


def recipe(tmp_path: Path, roles: dict[str, Any], **more: Any) -> Path:
    """A vLLM recipe on four-GPU nodes; `more` are further keys."""
    data = {
        "schema": 2,
        "name": "vllm",
        "model": {"path": "/models/m", "container": "c"},
        "resources": {"gpus_per_node": GPUS},
        "engine": "vllm",
        "roles": roles,
    }
    path = tmp_path / "recipe.yaml"
    path.write_text(json.dumps(data | more))
    return path


def role(nodes: int, gpus: int, tp: int = 1, dp: int = 1, pp: int = 1, **more: Any) -> dict[str, Any]:
    sizes = {"tensor-parallel-size": tp, "data-parallel-size": dp, "pipeline-parallel-size": pp}
    args = {name: value for name, value in sizes.items() if value > 1}
    settings = {"kv_events": True, "sidecar": True} | {k: v for k, v in more.items() if k != "args"}
    return {"nodes": nodes, "gpus": gpus, "args": args | more.get("args", {})} | settings


def value(process: Process, flag: str) -> str | None:
    return dict(zip(process.argv, process.argv[1:], strict=False)).get(flag)


def processes(plan: Plan) -> list[Process]:
    return [process for worker in plan.workers for process in worker.processes]


def check_ports(plan: Plan) -> None:
    """Every port of an argv or env lies inside a claim of the node that it is on, and a rank adds nothing unclaimed."""
    claimed = {(c.node, c.first + i) for c in plan.claims for i in range(c.count)}
    for worker in plan.workers:
        for process in worker.processes:
            here = [value(process, flag) for flag in ("--port", "--grpc-port")]
            here += [str(publisher.port) for publisher in process.publishers]
            here += [process.env.get(name) for name in ("DYN_SYSTEM_PORT", "VLLM_NIXL_SIDE_CHANNEL_PORT")]
            here += [process.sidecar.env["DYN_SYSTEM_PORT"]] if process.sidecar else []
            there = [value(process, flag) for flag in ("--data-parallel-rpc-port", "--master-port")]
            used = {(process.node, int(port)) for port in here if port}
            used |= {(worker.nodes[0], int(port)) for port in there if port}
            assert used <= claimed
            if process.publishers:
                config = json.loads(value(process, "--kv-events-config") or "")
                base = int(config["endpoint"].rpartition(":")[2])
                assert [p.port for p in process.publishers] == [base + p.dp_rank for p in process.publishers]
                assert config["enable_kv_cache_events"] is True


# tp, pp, dp, nodes, GPUs of a worker; per node: ranks that register, whether a sidecar is there
LAYOUTS = [
    ("dp12-3x4", 1, 1, 12, 3, 12, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]], [True, True, True]),
    ("tp2dp4-2x4", 2, 1, 4, 2, 8, [[0, 1], [2, 3]], [True, True]),
    ("tp4dp2-2x4", 4, 1, 2, 2, 8, [[0], [1]], [True, True]),
    ("tp8-2x4", 8, 1, 1, 2, 8, [[0], []], [True, False]),
    ("tp4pp2-2x4", 4, 2, 1, 2, 8, [[0], []], [True, False]),
    ("dp4-1x4", 1, 1, 4, 1, 4, [[0, 1, 2, 3]], [True]),
    ("tp4-1x4", 4, 1, 1, 1, 4, [[0]], [True]),
]


@pytest.mark.parametrize(
    ("tp", "pp", "dp", "nodes", "gpus", "ranks", "sidecars"), [r[1:] for r in LAYOUTS], ids=[r[0] for r in LAYOUTS]
)
def test_sidecar_layouts(
    tmp_path: Path, tp: int, pp: int, dp: int, nodes: int, gpus: int, ranks: list[list[int]], sidecars: list[bool]
) -> None:
    plan = plan_of(recipe(tmp_path, {"agg": role(nodes, gpus, tp, dp, pp)}))
    found = processes(plan)
    assert [list(p.serves) for p in found] == ranks
    assert [[q.dp_rank for q in p.publishers] for p in found] == ranks
    assert [p.sidecar is not None for p in found] == sidecars
    assert all(p.sidecar.mode == "serving" for p in found if p.sidecar)
    assert [p.ready_port is not None for p in found] == sidecars
    check_ports(plan)
    expected = f"expect decode workers={sum(map(bool, ranks))} ranks={dp} kv_sources=all"
    assert expected in bundle_files(plan, "/run", "")["job.sbatch"]


PER_GPU = {"engine": {"type": "vllm", "dp_launch_mode": "per_gpu"}}


@pytest.mark.parametrize(("tp", "nodes"), [(1, 1), (1, 2), (2, 2), (4, 2)])
def test_a_process_for_each_rank(tmp_path: Path, tp: int, nodes: int) -> None:
    """vLLM's external load balancing: each rank is a process on its own GPUs, and registers alone."""
    ranks = nodes * GPUS // tp
    plan = plan_of(recipe(tmp_path, {"agg": role(nodes, nodes * GPUS, tp, ranks, sidecar=False)}, **PER_GPU))
    [worker] = plan.workers
    found = processes(plan)
    assert worker.launcher == "task"
    assert worker.nodes == tuple(rank * tp // GPUS for rank in range(ranks))
    assert [p.name for p in found] == [f"agg-0.{rank}" for rank in range(ranks)]
    assert [p.gpus for p in found] == [tuple(range(r * tp % GPUS, r * tp % GPUS + tp)) for r in range(ranks)]
    assert [value(p, "--data-parallel-rank") for p in found] == [str(rank) for rank in range(ranks)]
    assert {value(p, "--data-parallel-address") for p in found} == {"${NODE_ADDR[0]}"}
    assert [p.serves for p in found] == [(rank,) for rank in range(ranks)]
    assert len({(p.node, p.env["DYN_SYSTEM_PORT"]) for p in found}) == ranks
    assert not {"--data-parallel-size-local", "--data-parallel-hybrid-lb", "--headless"} & {
        w for p in found for w in p.argv
    }
    check_ports(plan)
    bundle = bundle_files(plan, "/run", "")
    assert f"task_worker agg-0 0{'-1' * (nodes == 2)} workers/agg-0.sh {GPUS // tp} " in bundle["job.sbatch"]
    last = f"{nodes - 1}.{GPUS // tp - 1}) # serves its own ranks; publishes rank {ranks - 1} on {5200 + ranks - 1}"
    assert ("case $NODE_INDEX.$RANK_HERE in" in bundle["workers/agg-0.sh"], last in bundle["workers/agg-0.sh"]) == (
        True,
        True,
    )


def test_one_rank_is_one_process_in_any_launch_mode(tmp_path: Path) -> None:
    plan = plan_of(recipe(tmp_path, {"agg": role(1, 4, 4, sidecar=False)}, **PER_GPU))
    assert (plan.workers[0].launcher, len(processes(plan))) == ("node", 1)


@pytest.mark.parametrize(
    ("more", "frontend", "path"),
    [
        ({"sidecar": True}, "dynamo", "engine.dp_launch_mode"),
        ({"args": {"data-parallel-hybrid-lb": True}}, "dynamo", "roles.agg.args.data-parallel-hybrid-lb"),
        ({"kv_events": False}, "vllm", "engine.dp_launch_mode"),
    ],
)
def test_what_a_process_for_each_rank_rules_out(tmp_path: Path, more: dict[str, Any], frontend: str, path: str) -> None:
    agg = role(1, 4, 1, 4, **{"sidecar": False, **more})
    result = build(recipe(tmp_path, {"agg": agg}, frontend={"type": frontend}, **PER_GPU))
    found = [(d.code, d.path) for d in result.diagnostics if d.severity == "error"]
    assert found == [("vllm/dp-launch", path)]


def test_hybrid_dp_starts_and_rendezvous(tmp_path: Path) -> None:
    plan = plan_of(recipe(tmp_path, {"agg": role(3, 12, dp=12)}))
    found = processes(plan)
    assert [value(p, "--data-parallel-start-rank") for p in found] == ["0", "4", "8"]
    assert {value(p, "--data-parallel-size") for p in found} == {"12"}
    assert {value(p, "--data-parallel-size-local") for p in found} == {"4"}
    assert {value(p, "--data-parallel-address") for p in found} == {"${NODE_ADDR[0]}"}
    assert all("--data-parallel-hybrid-lb" in p.argv and "--headless" not in p.argv for p in found)
    assert all(p.argv[:5] == ("python3", "-m", "vllm.entrypoints.cli.main", "serve", "/models/m") for p in found)
    assert all(p.env["VLLM_USE_RUST_FRONTEND"] == "1" for p in found)
    [block] = {(c.first, c.count) for c in plan.claims if c.purpose == "kv_events"}
    assert block == (5200, 12)
    assert [c.node for c in plan.claims if c.purpose == "dp_rpc"] == [0]


def test_a_replica_over_nodes_has_a_headless_follower(tmp_path: Path) -> None:
    plan = plan_of(recipe(tmp_path, {"agg": role(2, 16, tp=16)}, resources={"gpus_per_node": 8}))
    leader, follower = processes(plan)
    for process in (leader, follower):
        assert value(process, "--distributed-executor-backend") == "mp"
        assert value(process, "--nnodes") == "2"
        assert value(process, "--master-addr") == "${NODE_ADDR[0]}"
        assert value(process, "--node-rank") == str(process.node_rank)
    assert "--headless" in follower.argv
    assert "--headless" not in leader.argv
    assert not {"--port", "--grpc-port", "--host", "--kv-events-config"} & set(follower.argv)
    assert follower.sidecar is None
    check_ports(plan)


def test_one_node_is_the_rust_server(tmp_path: Path) -> None:
    [process] = processes(plan_of(recipe(tmp_path, {"agg": role(1, 4, dp=4)})))
    assert process.argv[:3] == ("vllm-rs", "serve", "/models/m")
    assert "VLLM_USE_RUST_FRONTEND" not in process.env


def test_the_wrapper_registers_each_node(tmp_path: Path) -> None:
    roles = {
        "prefill": role(1, 4, tp=4, sidecar=False, kv_events=False),
        "decode": role(2, 8, dp=8, sidecar=False, kv_events=False),
    }
    plan = plan_of(recipe(tmp_path, roles))
    prefill, first, second = processes(plan)
    assert all(p.argv[:5] == ("python3", "-m", "dynamo.vllm", "--model", "/models/m") for p in (prefill, first, second))
    assert [value(p, "--disaggregation-mode") for p in (prefill, first, second)] == ["prefill", "decode", "decode"]
    assert [list(p.serves) for p in (first, second)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    for process in (prefill, first, second):
        assert process.sidecar is None
        assert process.env["DYN_SYSTEM_PORT"] == str(process.ready_port)
        assert json.loads(value(process, "--kv-transfer-config") or "") == {
            "kv_connector": "NixlConnector",
            "kv_role": "kv_both",
        }
        assert process.env["VLLM_NIXL_SIDE_CHANNEL_HOST"] == f"${{NODE_ADDR[{process.node}]}}"
    check_ports(plan)


def test_a_headless_wrapper_registers_nothing(tmp_path: Path) -> None:
    leader, follower = processes(plan_of(recipe(tmp_path, {"agg": role(2, 8, tp=8, sidecar=False, kv_events=False)})))
    assert "DYN_SYSTEM_PORT" in leader.env
    assert "DYN_SYSTEM_PORT" not in follower.env
    assert follower.ready_port is None


def test_disaggregated_sidecars_are_told_their_role(tmp_path: Path) -> None:
    roles = {"prefill": role(1, 4, dp=4), "decode": role(1, 4, tp=4, kv_events=False)}
    found = processes(plan_of(recipe(tmp_path, roles)))
    sidecars = [p.sidecar.argv for p in found if p.sidecar]
    assert [argv[:3] for argv in sidecars] == [("python3", "-m", "dynamo.vllm.sidecar")] * 2
    assert [argv[-2:] for argv in sidecars] == [
        ("--disaggregation-mode", "prefill"),
        ("--disaggregation-mode", "decode"),
    ]
    assert all("--disaggregation-mode" not in p.argv for p in found)


def test_colocated_workers_never_share_a_port(tmp_path: Path) -> None:
    args = {"args": {"data-parallel-rpc-port": 13345}}
    roles = {
        "prefill": role(1, 2, dp=2, workers=1, **args),
        "decode": role(1, 2, dp=2, workers=1, **args) | {"nodes": "colocate"},
    }
    plan = plan_of(recipe(tmp_path, roles))
    check_ports(plan)
    prefill, decode = processes(plan)
    assert (prefill.gpus, decode.gpus) == ((0, 1), (2, 3))
    assert value(prefill, "--data-parallel-rpc-port") != value(decode, "--data-parallel-rpc-port")
    assert prefill.env["VLLM_NIXL_SIDE_CHANNEL_PORT"] != decode.env["VLLM_NIXL_SIDE_CHANNEL_PORT"]


@pytest.mark.parametrize(
    ("engine", "args", "prefill"),
    [
        ({"type": "vllm"}, {}, {"kv_connector": "NixlConnector", "kv_role": "kv_both"}),
        ({"type": "vllm", "connector": "lmcache"}, {}, {"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"}),
        (
            {"type": "vllm", "connector": "mooncake"},
            {},
            {"kv_connector": "MooncakeConnector", "kv_role": "kv_producer"},
        ),
        (
            {"type": "vllm", "connector": None},
            {"connector": "lmcache"},
            {"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"},
        ),
        (
            {"type": "vllm", "connector": None},
            {"kv-transfer-config": '{"kv_connector": "X", "kv_role": "kv_both"}'},
            {"kv_connector": "X", "kv_role": "kv_both"},
        ),
    ],
)
def test_connectors(tmp_path: Path, engine: dict[str, Any], args: dict[str, Any], prefill: dict[str, Any]) -> None:
    roles = {name: role(1, 4, tp=4, kv_events=False, args=args) for name in ("prefill", "decode")}
    first, second = processes(plan_of(recipe(tmp_path, roles, engine=engine)))
    assert json.loads(value(first, "--kv-transfer-config") or "") == prefill
    assert "--connector" not in first.argv
    assert ("VLLM_NIXL_SIDE_CHANNEL_PORT" in first.env) is (prefill["kv_connector"] == "NixlConnector")
    assert ("VLLM_MOONCAKE_BOOTSTRAP_PORT" in first.env) is (prefill["kv_connector"] == "MooncakeConnector")
    assert "VLLM_MOONCAKE_BOOTSTRAP_PORT" not in second.env


def test_the_router_gets_every_node_that_serves(tmp_path: Path) -> None:
    agg = role(2, 8, dp=8, sidecar=False, kv_events=False)
    plan = plan_of(recipe(tmp_path, {"agg": agg}, frontend={"type": "vllm-router", "args": {"policy": "round_robin"}}))
    [frontend] = plan.frontends
    first, second = processes(plan)
    assert first.argv[:3] == ("vllm", "serve", "/models/m")
    urls = [f"http://${{NODE_ADDR[{p.node}]}}:{value(p, '--port')}" for p in (first, second)]
    routed = ("--worker-urls", *urls, "--policy", "round_robin")
    assert frontend.argv == ("vllm-router", "--host", "0.0.0.0", "--port", str(frontend.port), *routed)


def test_the_router_of_prefill_and_decode(tmp_path: Path) -> None:
    roles = {name: role(1, 4, tp=4, sidecar=False, kv_events=False) for name in ("prefill", "decode")}
    [frontend] = plan_of(recipe(tmp_path, roles, frontend={"type": "vllm-router"})).frontends
    text = " ".join(frontend.argv)
    assert re.search(r"--vllm-pd-disaggregation --prefill http://\S+:\d+ --decode http://\S+:\d+$", text)


def test_clients_of_one_worker_talk_to_its_leader(tmp_path: Path) -> None:
    agg = role(2, 8, dp=8, sidecar=False, kv_events=False)
    plan = plan_of(recipe(tmp_path, {"agg": agg}, frontend={"type": "vllm"}))
    leader, follower = processes(plan)
    assert plan.endpoint is not None
    assert (plan.endpoint.node, str(plan.endpoint.port)) == (0, value(leader, "--port"))
    assert "--headless" in follower.argv
    assert value(follower, "--data-parallel-start-rank") == "4"
    assert "--data-parallel-hybrid-lb" not in leader.argv
    assert (list(leader.serves), list(follower.serves)) == ([*range(8)], [])
    check_ports(plan)


BAD = [
    ("vllm/gpu-count", "TP2 x DP4 is 8 GPUs, but each agg worker has 4", "tensor-parallel-size", role(1, 4, 2, 4)),
    ("vllm/uneven-nodes", "4 + 2", "/gpus", role(2, 6, dp=6)),
    ("vllm/replica-nodes", "one replica of 8 GPUs spans nodes", "data-parallel-size", role(4, 16, 8, 2)),
    ("vllm/replica-split", "replicas of 3 GPUs do not divide the 4", "tensor-parallel-size", role(3, 12, 3, 4)),
    ("vllm/owned-flag", "`--headless` is set by srtctl", "headless", role(1, 4, 4, args={"headless": True})),
    ("vllm/size-name", "vLLM has no `--tp`", "tp", role(1, 4, args={"tp": 4})),
    ("vllm/connector", "`connector` must be one of nixl,", "connector", role(1, 4, 4, args={"connector": "nixxl"})),
    ("vllm/kv-transfer-config", "with a `kv_connector`", "kv-transfer-config", role(1, 4, 4, args={"kv-transfer-config": "{"})),
    ("vllm/no-prefix-cache", "its prefix cache is off", "no-enable-prefix-caching", role(1, 4, 4, args={"no-enable-prefix-caching": True})),
    ("vllm/sidecar-server", "`--grpc` takes away", "grpc", role(1, 4, 4, args={"grpc": True})),
    ("vllm/sidecar-server", "one server of its node, not to 4", "api-server-count", role(1, 4, 4, args={"api-server-count": 4})),
    ("vllm/executor", "executor `ray`", "distributed-executor-backend", role(2, 8, 8, args={"distributed-executor-backend": "ray"})),
    ("vllm/dynamo-only-flag", "vLLM's own server rejects it", "dump-config-to", role(1, 4, 4, args={"dump-config-to": "/x"})),
    ("vllm/role", "contradicts role `agg`", "disaggregation-mode", role(1, 4, 4, args={"disaggregation-mode": "decode"})),
    ("args/port", "must be a port number", "port", role(1, 4, 4, args={"port": "x"})),
]  # fmt: skip


@pytest.mark.parametrize(("code", "words", "path", "agg"), BAD, ids=[f"{row[0]}-{n}" for n, row in enumerate(BAD)])
def test_what_cannot_run(tmp_path: Path, code: str, words: str, path: str, agg: dict[str, Any]) -> None:
    result = build(recipe(tmp_path, {"agg": agg}))
    assert result.plan is None
    [found] = [d for d in result.diagnostics if d.severity == "error"]
    assert (found.code, found.path) == (code, f"roles.agg.args.{path}".replace("args./", ""))
    assert words in found.message
    assert found.hint
    assert found.span is not None


@pytest.mark.parametrize(
    ("more", "code", "path"),
    [
        ({"engine": {"type": "vllm", "conector": "nixl"}}, "recipe/unknown-key", "engine.conector"),
        ({"engine": {"type": "vllm", "dp_launch_mode": "per_rank"}}, "vllm/dp-launch", "engine.dp_launch_mode"),
        ({"engine": {"type": "vllm", "connector": None}}, "vllm/no-connector", "engine.connector"),
        ({"frontend": {"type": "sglang-router"}}, "plan/frontend-engine", "frontend.type"),
        ({"frontend": {"type": "vllm"}}, "plan/direct-frontend", "frontend.type"),
        ({"frontend": {"type": "vllm-router", "args": {"port": 1}}}, "frontend/owned-flag", "frontend.args.port"),
    ],
)
def test_what_contradicts(tmp_path: Path, more: dict[str, Any], code: str, path: str) -> None:
    roles = {name: role(1, 4, tp=4, sidecar=False, kv_events=False) for name in ("prefill", "decode")}
    result = build(recipe(tmp_path, roles, **more))
    found = {(d.code, d.path) for d in result.diagnostics if d.severity == "error"}
    assert found == {(code, path)}


def test_the_scripts_pass_shellcheck(tmp_path: Path) -> None:
    roles = {"prefill": role(2, 8, dp=8), "decode": role(2, 8, tp=8, kv_events=False)}
    files = bundle_files(plan_of(recipe(tmp_path, roles)), "/run", "")
    scripts = [name for name in files if name.endswith((".sh", ".sbatch"))]
    for name in scripts:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[name])
    found = subprocess.run(["shellcheck", *scripts], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (0, "")


def test_a_permission_to_colocate_is_a_warning(tmp_path: Path) -> None:
    roles = {name: role(1, 2, tp=2) for name in ("prefill", "decode")}
    result = build(recipe(tmp_path, roles, engine={"type": "vllm", "allow_prefill_decode_colocation": True}))
    assert result.plan is not None
    assert "vllm/colocation" in {d.code for d in result.plan.warnings}


def test_a_port_that_two_workers_name_on_one_node(tmp_path: Path) -> None:
    args = {"args": {"grpc-port": 9100}}
    roles = {"prefill": role(1, 2, tp=2, **args), "decode": role(1, 2, tp=2, **args) | {"nodes": "colocate"}}
    result = build(recipe(tmp_path, roles))
    [found] = [d for d in result.diagnostics if d.severity == "error"]
    assert (found.code, found.path) == ("ports/conflict", "roles.decode.args.grpc-port")
    assert "grpc of prefill-0.0" in found.message
