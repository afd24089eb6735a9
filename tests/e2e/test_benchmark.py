"""A client on the sandbox: its end is the end of the job, and whatever ends before it is named."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import Sandbox, wait_until
from tests.support import REPOSITORY

pytestmark = pytest.mark.e2e

EXAMPLE = REPOSITORY / "examples/agg/sglang-benchmark-1n.yaml"
#: Tells the tests that it runs, then waits for its end.
WAITING = "touch $SRT_RESULTS_DIR/began; exec sleep 1000"

Recipe = Callable[..., Path]


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    """The example with another command, and further lines at its end."""

    def make(command: str, *lines: str) -> Path:
        text, _, _ = EXAMPLE.read_text().partition("benchmark:")
        path = tmp_path / "benchmark.yaml"
        path.write_text("\n".join([f"{text}benchmark: {{type: custom, command: {json.dumps(command)}}}", *lines]))
        return path

    return make


def test_the_example_ends_by_itself(sandbox: Sandbox) -> None:
    status = sandbox.apply(EXAMPLE.relative_to(REPOSITORY))
    assert (status["outcome"], status["cause"], status["verdict"]) == ("completed", "benchmark finished", "pass")
    run = sandbox.run_dir(status["run"])
    results = json.loads((run / "logs/benchmark/results.json").read_text())
    assert results["requests"] == 4
    assert results["tokens"] == 8
    assert json.loads((run / "state/end.json").read_text())["exit_code"] == 0
    assert "4 requests, the slowest took" in sandbox.cli("logs", status["run"], "benchmark").stdout
    events = [json.loads(line)["event"] for line in (run / "events/job.jsonl").read_text().splitlines()]
    assert events.index("checks_ended") < events.index("serving") < events.index("client_started")
    assert not sandbox.left_over(status["job_id"])


def test_a_failing_one_says_why(sandbox: Sandbox, recipe: Recipe) -> None:
    status = sandbox.apply(recipe("echo begun; echo 'ValueError: no such dataset'; exit 7"), code=1)
    assert status["outcome"] == "failed"
    assert status["cause"] == "the benchmark exited with 7: ValueError: no such dataset"
    assert status["look_at"] == "benchmark"
    assert {p["state"]: p["code"] for p in status["parts"] if p["process"] == "benchmark"} == {"exited": 7}


def began(sandbox: Sandbox, path: Path) -> str:
    """The run of `path`, once its client runs."""
    run = json.loads(sandbox.cli("apply", str(path), "-o", "json").stdout)["run"]
    wait_until("the client runs", (sandbox.run_dir(run) / "logs/benchmark/began").exists)
    status = sandbox.cli.json("status", run)
    assert status["phase"] == "benchmarking"
    assert status["benchmark_seconds"] >= 0
    return str(run)


def test_a_worker_that_dies_meanwhile_is_named(sandbox: Sandbox, recipe: Recipe) -> None:
    run = began(sandbox, recipe(WAITING))
    events = (sandbox.run_dir(run) / "events/node-0.jsonl").read_text().splitlines()
    started = [e for e in map(json.loads, events) if (e["event"], e.get("part")) == ("started", "engine")]
    os.kill(started[0]["pid"], signal.SIGKILL)
    sandbox.cli("status", run, "--watch")
    status = sandbox.cli.json("status", run)
    assert status["cause"].startswith("agg-0.0 engine on sandbox-0 was killed by SIGKILL")
    assert status["outcome"] == "failed"
    assert not sandbox.left_over(status["job_id"])


def test_it_can_be_cancelled(sandbox: Sandbox, recipe: Recipe) -> None:
    run = began(sandbox, recipe(WAITING))
    sandbox.cli("cancel", run, "--wait")
    status = sandbox.cli.json("status", run)
    assert status["outcome"] == "cancelled"
    assert not sandbox.left_over(status["job_id"])


def test_failed_checks_come_first(sandbox: Sandbox, recipe: Recipe) -> None:
    status = sandbox.apply(recipe(WAITING, "checks: {kv_events: {timeout: 3}}"), code=3, SRTCTL_SIM_FAULT="silent_kv=0")
    assert status["outcome"] == "checks_failed"
    assert not (sandbox.run_dir(status["run"]) / "logs/benchmark").exists()


def test_services_stand_beside_it(sandbox: Sandbox, recipe: Recipe) -> None:
    """One before the workers, on a port that srtctl chose; one after them, which needs the frontend."""
    serve = ["python3", "-m", "http.server", "{port}", "--bind", "{node_ip}"]
    models = "python3 -c \"import urllib.request as u; print(u.urlopen('http://{head_ip}:8000/v1/models').status)\""
    before = {"name": "files", "command": serve, "port": "auto"}
    after = {"name": "watcher", "command": f"{models}; exec sleep 1000", "start": "after"}
    path = recipe(
        "curl -fsS http://$SRT_FRONTEND_HOST:7000/ >$SRT_RESULTS_DIR/listing",
        f"services: {json.dumps([before, after])}",
    )
    status = sandbox.apply(path)
    assert status["outcome"] == "completed"
    run = sandbox.run_dir(status["run"])
    assert "Directory listing" in (run / "logs/benchmark/listing").read_text()
    assert (run / "logs/watcher.service.log").read_text() == "200\n"


def test_a_service_that_ends_is_named(sandbox: Sandbox, recipe: Recipe) -> None:
    service = {"name": "watcher", "command": "echo 'error: gone'; exit 3"}
    status = sandbox.apply(recipe(WAITING, f"services: {json.dumps([service])}"), code=1)
    assert status["cause"] == "watcher service on sandbox-0 exited with 3: error: gone"
