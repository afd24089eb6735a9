"""vLLM's examples on a real Slurm with the real Dynamo: each fault is named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.conftest import Sandbox
from tests.e2e.test_faults import EVENTS, Row, applied, edited, only_that_failed

pytestmark = pytest.mark.e2e

HYBRID = "examples/agg/vllm-hybrid-dp-2n.yaml"
TENSOR = "examples/agg/vllm-tp-2n.yaml"
APART = "examples/disagg/vllm-2n.yaml"


ROWS: dict[str, Row] = {
    "discovered publisher elsewhere than told": Row(
        TENSOR,
        3,
        ("has no KV publisher for rank 0 on port", "vLLM", "KV event sources of ranks [0]"),
        "publishers",
        ("agg-0 rank 0",),
        EVENTS,
        fault="wrong_port",
    ),
    "planned publisher elsewhere": Row(
        HYBRID,
        3,
        ("agg-0.1", "publishes rank 2 on another port than 5202", "6202"),
        "publishers",
        ("agg-0 rank 2", "agg-0 rank 3"),
        fault="wrong_port@1",
    ),
    "no address told": Row(
        TENSOR,
        1,
        ("which agg-0.0 publishes", "on a port of its choice", "KV event sources of ranks []"),
        "registration",
        ("agg-0 rank 0",),
        fault="no_sources",
    ),
    "wrong rank": Row(
        HYBRID,
        3,
        ("carry DP rank 3", "the router drops them"),
        "publishers",
        ("agg-0 rank 2", "agg-0 rank 3"),
        fault="bad_rank@1",
    ),
    "silent publisher": Row(
        HYBRID,
        3,
        ("no KV event of agg-0 rank 3 (agg-0.1", "data_parallel_rank=2"),
        "kv_events",
        ("agg-0 rank 3",),
        ("publishers", "cache_reuse"),
        fault="silent_kv=3",
    ),
    "engine not healthy": Row(
        TENSOR,
        1,
        ("agg-0.0", "listens, but says that it is not healthy", "logs/agg-0.0.engine.log"),
        "registration",
        ("agg-0 rank 0",),
        fault="never_ready",
    ),
    "dead engine": Row(
        HYBRID,
        3,
        ("agg-0.1", "serves no request", "ready", "logs/agg-0.1.engine.log"),
        "rank_routing",
        ("agg-0 rank 2", "agg-0 rank 3"),
        fault="dead_engine@1",
    ),
    "launcher: NIXL side channel on localhost": Row(
        APART,
        3,
        ("NIXL handshake with localhost:560", "failed", "side channel"),
        "rank_routing",
        ("prefill-0 rank 0", "prefill-0 rank 1", "decode-0 rank 0", "decode-0 rank 1"),
        ("transfer", "load"),
        edits={
            "workers/prefill-0.sh": (
                '"VLLM_NIXL_SIDE_CHANNEL_HOST=${NODE_ADDR[0]}"',
                "VLLM_NIXL_SIDE_CHANNEL_HOST=localhost",
            ),
        },
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_fault_is_named(sandbox: Sandbox, name: str) -> None:
    row = ROWS[name]
    folder = f"vllm-{name}".replace(" ", "-")
    status = edited(sandbox, row, folder) if row.edits else applied(sandbox, row)
    assert status["outcome"] == ("checks_failed" if row.code == 3 else "failed")
    diagnosis = status["diagnosis"]
    for word in row.words:
        assert word in f"{diagnosis['cause']} {diagnosis['remedy']}", diagnosis
    only_that_failed(row, checks_of(sandbox, status["run"]), diagnosis)


def test_the_discovered_address_is_that_of_the_planned_process(sandbox: Sandbox) -> None:
    """The plan claims no port; what the engine told is what the check looked at, and whose it was."""
    run = sandbox.apply(TENSOR)["run"]
    sandbox.cli("cancel", run, "--wait")
    plan = json.loads((sandbox.run_dir(run) / "plan.json").read_text())
    assert [q["publishers"] for w in plan["workers"] for q in w["processes"]] == [[{"dp_rank": 0, "port": 0}], []]
    assert "kv_events" not in {claim["purpose"] for claim in plan["claims"]}
    [check] = [check for check in checks_of(sandbox, run)["checks"] if check["name"] == "publishers"]
    [evidence] = [target["evidence"] for target in check["targets"]]
    assert (evidence["discovered"], evidence["owner"], evidence["event_dp_rank"]) == (True, "agg-0.0", 0)
    assert evidence["port"] > 0


def checks_of(sandbox: Sandbox, run: str) -> Any:
    return json.loads((sandbox.run_dir(run) / "checks.json").read_text())
