"""Every row of the SGLang rules' table, on the finished plan: sidecars, publishers, ports; in every spelling of the sizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from srtctl.plan.model import Plan, Process
from tests.support import plan_of

LONG = ("tensor-parallel-size", "data-parallel-size", "pipeline-parallel-size", "enable-dp-attention")
SPELLINGS = [
    LONG,
    ("tp-size", "dp-size", "pp-size", "enable-dp-attention"),
    ("tp", "dp", "pp", "enable_dp_attention"),
    tuple(n.replace("-", "_") for n in LONG),
    ("tp_size", "dp_size", "pp_size", "enable-dp-attention"),
]

ROWS = [
    # tp, dp, pp, attention, nodes, workers, GPUs a node, kv_events, ranks per node, nodes with a sidecar
    (2, 2, 1, True, 2, 1, 1, True, {0: [0], 1: [1]}, [0, 1]),
    (8, 4, 1, True, 2, 1, 4, True, {0: [0, 1], 1: [2, 3]}, [0, 1]),
    (8, 2, 1, True, 4, 1, 2, True, {0: [0], 2: [1]}, [0, 2]),
    (8, 2, 2, True, 4, 1, 4, True, {0: [0], 1: [1]}, [0, 1]),
    (16, 16, 1, True, 4, 1, 4, True, {n: list(range(4 * n, 4 * n + 4)) for n in range(4)}, [0, 1, 2, 3]),
    (8, 1, 1, False, 2, 1, 4, True, {0: [0]}, [0]),
    (4, 1, 2, False, 2, 1, 4, True, {0: [0]}, [0]),
    (1, 2, 1, False, 2, 2, 2, True, {0: [0, 1], 1: [0, 1]}, [0, 1]),
    (8, 2, 1, True, 2, 1, 4, False, {}, [0]),
]


def recipe(tmp_path: Path, row: tuple[Any, ...], names: tuple[str, ...], **more: Any) -> Path:
    tp, dp, pp, attention, nodes, workers, gpus_per_node, kv_events, *_ = row
    gpus = nodes * gpus_per_node // workers
    args = {names[0]: tp, names[1]: dp, names[2]: pp} | ({names[3]: True} if attention else {})
    data = {
        "schema": 2,
        "name": "table",
        "model": {"path": "/models/m", "container": "c"},
        "resources": {"gpus_per_node": gpus_per_node},
        "engine": "sglang",
        "roles": {
            "agg": {
                "nodes": nodes,
                "workers": workers,
                "gpus": gpus,
                "kv_events": kv_events,
                "sidecar": True,
                "args": args | more,
            }
        },
    }
    path = tmp_path / "recipe.yaml"
    path.write_text(json.dumps(data))
    return path


@pytest.mark.parametrize("names", SPELLINGS, ids=lambda names: names[0])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"tp{row[0]}dp{row[1]}pp{row[2]}-{row[4]}x{row[6]}")
def test_publishers_sidecars_and_ports(tmp_path: Path, row: tuple[Any, ...], names: tuple[str, ...]) -> None:
    plan = plan_of(recipe(tmp_path, row, names))
    _, dp, _, attention, _, _, _, kv_events, ranks, sidecar_nodes = row
    processes = [p for w in plan.workers for p in w.processes]
    assert {p.node: [q.dp_rank for q in p.publishers] for p in processes if p.publishers} == ranks
    assert [p.node for p in processes if p.sidecar] == sidecar_nodes
    for process in processes:
        if process.sidecar:
            assert process.sidecar.mode == ("serving" if process.node_rank == 0 else "telemetry")
            assert "--telemetry-only" not in process.sidecar.argv
        check_flags(process, ordinary_dp=dp > 1 and not attention, kv_events=kv_events)
        check_ports_are_claimed(plan, process)
        if kv_events:
            block = [c for c in plan.claims if c.owner == process.name and c.purpose == "kv_events"]
            assert [c.count for c in block] == [dp]


def check_flags(process: Process, *, ordinary_dp: bool, kv_events: bool) -> None:
    argv = process.argv
    assert ("--nccl-port" in argv) is not ordinary_dp
    assert ("--grpc-port" in argv) is (process.sidecar is not None)
    assert ("--kv-events-config" in argv) is kv_events
    assert "--incremental-streaming-output" in argv
    assert process.env["SGLANG_RUST_BUILD_MODE"] == "never"


def check_ports_are_claimed(plan: Plan, process: Process) -> None:
    """Every port in an argv or env lies inside a claim of the node it is on."""
    claimed = {(c.node, c.first + i) for c in plan.claims for i in range(c.count)}
    argv = dict(zip(process.argv, process.argv[1:], strict=False))
    leader = next(w for w in plan.workers if process in w.processes).nodes[0]
    used = [(process.node, argv[f]) for f in ("--port", "--grpc-port", "--nccl-port") if f in argv]
    used += [(leader, argv["--dist-init-addr"].rpartition(":")[2])] if "--dist-init-addr" in argv else []
    used += [(process.node, str(q.port)) for q in process.publishers]
    used += [(process.node, process.sidecar.env["DYN_SYSTEM_PORT"])] if process.sidecar else []
    assert {(node, int(port)) for node, port in used} <= claimed


def test_two_workers_on_a_node_have_disjoint_publisher_blocks(tmp_path: Path) -> None:
    plan = plan_of(recipe(tmp_path, (1, 2, 1, False, 1, 2, 4, True), LONG))
    bound = [q.port for w in plan.workers for p in w.processes for q in p.publishers]
    assert bound == [5200, 5201, 5202, 5203]
