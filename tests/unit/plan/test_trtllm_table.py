"""TensorRT-LLM on the finished plan: one MPI job a worker whose rank 0 is the leader, its file in the bundle."""

from __future__ import annotations

import json
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from srtctl.plan.model import Plan, Process
from srtctl.render.bundle import bundle_files
from tests.support import build, plan_of

TRANSFER = {"backend": "UCX", "max_tokens_in_buffer": 8192}


def recipe(tmp_path: Path, roles: dict[str, Any], **more: Any) -> Path:
    """A TensorRT-LLM recipe on eight-GPU nodes; `more` are further keys."""
    data = {
        "schema": 2,
        "name": "trtllm",
        "model": {"path": "/models/m", "container": "c"},
        "resources": {"gpus_per_node": 8},
        "engine": "trtllm",
        "roles": roles,
    }
    path = tmp_path / "recipe.yaml"
    path.write_text(json.dumps(data | more))
    return path


def role(nodes: int, gpus: int, **more: Any) -> dict[str, Any]:
    args = {"tensor_parallel_size": gpus, "cache_transceiver_config": TRANSFER} | more.pop("args", {})
    return {"nodes": nodes, "gpus": gpus, "args": args} | more


def processes(plan: Plan) -> list[Process]:
    return [process for worker in plan.workers for process in worker.processes]


def value(argv: tuple[str, ...], flag: str) -> str | None:
    return dict(pairwise(argv)).get(flag)


def check_ports(plan: Plan) -> None:
    """Every port lies inside a claim of its node; MPI ranks meet at their worker's leader."""
    claimed = {(c.node, c.first + i) for c in plan.claims for i in range(c.count)}
    for worker in plan.workers:
        leader = worker.processes[0]
        for process in worker.processes:
            assert process.env["MASTER_ADDR"] == f"${{NODE_ADDR[{worker.nodes[0]}]}}"
            assert (worker.nodes[0], int(process.env["MASTER_PORT"])) in claimed
            assert process.argv == leader.argv
        ports = [value(leader.argv, "--port"), leader.env.get("DYN_SYSTEM_PORT"), str(leader.ready_port)]
        ports += [leader.sidecar.env["DYN_SYSTEM_PORT"]] if leader.sidecar else []
        assert {(leader.node, int(port)) for port in ports if port} <= claimed


def test_the_wrapper_is_one_mpi_job_over_uneven_nodes(tmp_path: Path) -> None:
    plan = plan_of(recipe(tmp_path, {"agg": role(2, 12, args={"enable_attention_dp": True})}))
    [worker] = plan.workers
    leader, follower = worker.processes
    assert worker.launcher == "mpi"
    assert [len(p.gpus) for p in worker.processes] == [8, 4]
    assert leader.argv[:6] == ("trtllm-llmapi-launch", "python3", "-m", "dynamo.trtllm", "--model-path", "/models/m")
    assert value(leader.argv, "--served-model-name") == plan.model.served_name == "m"
    assert (leader.serves, follower.serves) == (tuple(range(12)), ())
    assert str(leader.ready_port) == leader.env["DYN_SYSTEM_PORT"]
    assert (follower.ready_port, follower.env.get("DYN_SYSTEM_PORT")) == (None, None)
    check_ports(plan)
    files = bundle_files(plan, "/run", "")
    assert "mpi_worker agg-0 0-1 workers/agg-0.sh 8,4 pmix" in files["job.sbatch"]
    # Dynamo's status server listens on the node's own address alone.
    assert 'supervise_rank agg-0.0 "${NODE_ADDR[0]}:' in files["workers/agg-0.sh"]


def test_the_file_holds_every_argument_as_written(tmp_path: Path) -> None:
    more = {
        "cuda_graph_config": None,
        "max-seq-len": 9256,
        "enable_attention_dp": False,
        "moe_config": {"backend": "T"},
    }
    plan = plan_of(recipe(tmp_path, {"agg": role(1, 8, args=more)}))
    assert yaml.safe_load(bundle_files(plan, "/run", "")["files/trtllm-agg.yaml"]) == {
        "tensor_parallel_size": 8,
        "cache_transceiver_config": TRANSFER,
        "cuda_graph_config": None,
        "max_seq_len": 9256,
        "enable_attention_dp": False,
        "moe_config": {"backend": "T"},
    }
    [process] = processes(plan)
    assert value(process.argv, "--extra-engine-args") == "${RUN_DIR}/state/files/trtllm-agg.yaml"


def test_a_sidecar_beside_rank_0_alone(tmp_path: Path) -> None:
    plan = plan_of(recipe(tmp_path, {"agg": role(2, 16, sidecar=True, args={"max_seq_len": 4096})}))
    leader, follower = processes(plan)
    port = value(leader.argv, "--port")
    start = ("trtllm-llmapi-launch", "python3", "-m", "tensorrt_llm.commands.serve", "/models/m", "--grpc")
    assert leader.argv[:6] == start
    assert value(leader.argv, "--grpc-protocol") == "openengine"  # SMG, the default, is what no sidecar speaks
    assert value(leader.argv, "--server_role") is None
    assert (str(leader.ready_port), follower.ready_port, follower.sidecar) == (port, None, None)
    assert leader.sidecar is not None
    assert leader.sidecar.mode == "serving"
    endpoint = ("--grpc-endpoint", f"127.0.0.1:{port}", "--model-path", "/models/m", "--context-length", "4096")
    assert leader.sidecar.argv == ("python3", "-m", "dynamo.trtllm.sidecar", *endpoint)
    assert plan.workers[0].dp_size == 1
    assert plan.model.served_name == "/models/m"
    check_ports(plan)
    assert (
        "expect decode workers=1 ranks=1" not in bundle_files(plan, "/run", "")["job.sbatch"]
    )  # round-robin tells nothing


def test_prefill_and_decode(tmp_path: Path) -> None:
    roles = {"prefill": role(1, 4, workers=2), "decode": role(1, 8, sidecar=True)}
    plan = plan_of(recipe(tmp_path, roles))
    first, second, decode = processes(plan)
    assert [value(p.argv, "--disaggregation-mode") for p in (first, second)] == ["prefill", "prefill"]
    assert decode.sidecar is not None
    assert decode.sidecar.argv[-2:] == ("--disaggregation-mode", "decode")
    assert value(decode.argv, "--server_role") == "GENERATION"
    assert first.env["MASTER_PORT"] != second.env["MASTER_PORT"]
    assert set(plan.files) == {"trtllm-prefill.yaml", "trtllm-decode.yaml"}
    check_ports(plan)


def test_kv_events_of_the_wrapper_reach_a_kv_router(tmp_path: Path) -> None:
    plan = plan_of(recipe(tmp_path, {"agg": role(1, 8, kv_events=True)}))
    assert "--publish-kv-events" in processes(plan)[0].argv
    assert value(plan.frontends[0].argv, "--router-mode") == "kv"


def test_its_own_server_before_prefill_and_decode(tmp_path: Path) -> None:
    roles = {"prefill": role(1, 8), "decode": role(1, 8)}
    plan = plan_of(recipe(tmp_path, roles, frontend={"type": "trtllm_serve"}))
    [frontend] = plan.frontends
    assert frontend.argv == (
        "trtllm-serve",
        "disaggregated",
        "--config_file",
        "${RUN_DIR}/state/files/trtllm-serve.yaml",
    )
    prefill, decode = processes(plan)
    assert prefill.argv[:3] == ("trtllm-llmapi-launch", "trtllm-serve", "/models/m")
    assert yaml.safe_load(plan.files["trtllm-serve.yaml"]) == {
        "hostname": "0.0.0.0",
        "port": frontend.port,
        "context_servers": {"num_instances": 1, "urls": [f"${{NODE_ADDR[0]}}:{value(prefill.argv, '--port')}"]},
        "generation_servers": {"num_instances": 1, "urls": [f"${{NODE_ADDR[1]}}:{value(decode.argv, '--port')}"]},
    }
    assert "bind_files" in bundle_files(plan, "/run", "")["job.sbatch"]


def test_its_own_server_of_one_worker(tmp_path: Path) -> None:
    plan = plan_of(recipe(tmp_path, {"agg": role(2, 16)}, frontend={"type": "trtllm_serve"}))
    leader, follower = processes(plan)
    assert plan.frontends == ()
    assert plan.endpoint is not None
    assert (plan.endpoint.node, str(plan.endpoint.port)) == (0, value(leader.argv, "--port"))
    assert follower.ready_port is None


BAD = [
    (
        "trtllm/gpu-count",
        "TP8 x PP2 is 16 GPUs",
        "args.tensor_parallel_size",
        role(1, 8, args={"pipeline_parallel_size": 2}),
    ),
    ("trtllm/owned-flag", "`port` is no key of the engine's file", "args.port", role(1, 8, args={"port": 1})),
    ("trtllm/kv-events", "alone", "kv_events", role(1, 8, kv_events=True, sidecar=True)),
    (
        "args/size",
        "must be a whole number",
        "args.tensor_parallel_size",
        role(1, 8, args={"tensor_parallel_size": "x"}),
    ),
]


@pytest.mark.parametrize(("code", "words", "path", "agg"), BAD, ids=[row[0] for row in BAD])
def test_what_cannot_run(tmp_path: Path, code: str, words: str, path: str, agg: dict[str, Any]) -> None:
    result = build(recipe(tmp_path, {"agg": agg}))
    assert result.plan is None
    [found] = [d for d in result.diagnostics if d.severity == "error"]
    assert (found.code, found.path) == (code, f"roles.agg.{path}")
    assert words in found.message
    assert found.hint
    assert found.span is not None


def test_what_contradicts(tmp_path: Path) -> None:
    bare = {"nodes": 1, "gpus": 8, "args": {"tensor_parallel_size": 8}, "sidecar": True}
    roles = {"prefill": bare, "decode": bare}
    result = build(recipe(tmp_path, roles, engine={"type": "trtllm", "served_model_name": "x"}))
    found = {(d.code, d.path) for d in result.diagnostics if d.severity == "error"}
    assert found == {
        ("trtllm/served-name", "engine.served_model_name"),
        ("trtllm/no-transceiver", "roles.prefill.args"),
        ("trtllm/no-transceiver", "roles.decode.args"),
    }


def test_the_scripts_pass_shellcheck(tmp_path: Path) -> None:
    roles = {"prefill": role(2, 12), "decode": role(1, 8, sidecar=True)}
    files = bundle_files(plan_of(recipe(tmp_path, roles)), "/run", "")
    scripts = [name for name in files if name.endswith((".sh", ".sbatch"))]
    for name in scripts:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[name])
    found = subprocess.run(["shellcheck", *scripts], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (0, "")
