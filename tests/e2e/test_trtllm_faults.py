"""Killing any one process of a TensorRT-LLM example fails the run, and the run names that process."""

from __future__ import annotations

import json
import os
import signal

import pytest

from tests.e2e.conftest import Sandbox, wait_until

pytestmark = pytest.mark.e2e

AGG, DISAGG = "examples/agg/trtllm-tp-2n.yaml", "examples/disagg/trtllm-2n.yaml"

#: Example, process, part, and its node's number in the plan. A rank but the first of its node has a name of its own.
KILLED = [
    (AGG, "agg-0.0", "engine", 0),
    (AGG, "agg-0.0.rank1", "engine", 0),
    (AGG, "agg-0.1", "engine", 1),
    (AGG, "agg-0.1.rank3", "engine", 1),
    (AGG, "agg-0.0", "sidecar", 0),
    (AGG, "frontend-0", "frontend", 0),
    (AGG, "etcd", "service", 0),
    (DISAGG, "prefill-0.0", "engine", 0),
    (DISAGG, "prefill-0.0.rank1", "engine", 0),
    (DISAGG, "decode-0.0", "sidecar", 1),
]


@pytest.mark.parametrize(("example", "process", "part", "node"), KILLED, ids=[f"{row[1]} {row[2]}" for row in KILLED])
def test_whoever_dies_is_named(sandbox: Sandbox, example: str, process: str, part: str, node: int) -> None:
    run = sandbox.apply(example)["run"]
    folder = sandbox.run_dir(run)
    pids = {(e["process"], e["part"]): e["pid"] for e in started(sandbox, run)}
    os.kill(pids[process, part], signal.SIGKILL)
    end = folder / "state/end.json"
    wait_until("its end", lambda: sandbox.cli.json("status", run)["phase"] == "ended")
    name = [line.split("\t")[1] for line in (folder / "state/nodes.tsv").read_text().splitlines()][node]
    words = f"{process} {part} on {name} was killed by SIGKILL"
    ended = json.loads(end.read_text())
    assert (ended["state"], ended["exit_code"], ended["cause"]) == ("failed", 1, words)
    status = sandbox.cli.json("status", run)
    assert (status["outcome"], status["cause"]) == ("failed", words)
    assert sandbox.left_over(status["job_id"]) == []
    others = [p for p in status["parts"] if (p["process"], p["part"]) != (process, part) and p["part"]]
    assert all(p["stop_seconds"] is not None and p["state"] == "stopped" for p in others), others


def started(sandbox: Sandbox, run: str) -> list[dict[str, object]]:
    lines = [
        line for file in (sandbox.run_dir(run) / "events").glob("*.jsonl") for line in file.read_text().splitlines()
    ]
    return [event for event in map(json.loads, lines) if event["event"] == "started"]
