"""One recipe, two nodes, a real Slurm job, the real Dynamo: it serves, it proves it, and it fails with the right name."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Sandbox, wait_until

pytestmark = pytest.mark.e2e

EXAMPLE = "examples/agg/sglang-attention-dp-2n.yaml"

# Name -> targets: the worker, its two ranks, the whole deployment.
CHECKS = {
    "placement": 1,
    "registration": 2,
    "rank_routing": 2,
    "publishers": 2,
    "kv_events": 2,
    "cache_reuse": 2,
    "load": 1,
}


def events(sandbox: Sandbox, run: str) -> list[dict[str, Any]]:
    files = sorted((sandbox.run_dir(run) / "events").glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def ended(sandbox: Sandbox, run: str) -> dict[str, Any]:
    """The run's end record, once every process of its job is gone."""
    path = sandbox.run_dir(run) / "state/end.json"
    end: dict[str, Any] = json.loads(wait_until("end.json", lambda: path.exists() and path.read_text()))
    job_id = (sandbox.run_dir(run) / "state/job_id").read_text().strip()
    wait_until("every process gone", lambda: not sandbox.left_over(job_id), 60)
    return end


def test_the_example_serves_and_every_check_passes(sandbox: Sandbox) -> None:
    status = sandbox.apply(EXAMPLE)
    run = status["run"]
    try:
        assert status["phase"] == "serving"
        checks = json.loads((sandbox.run_dir(run) / "checks.json").read_text())
        assert [(c["name"], c["verdict"], len(c["targets"])) for c in checks["checks"]] == [
            (name, "pass", count) for name, count in CHECKS.items()
        ]
        assert checks["seconds"] < 30
        again = sandbox.cli.json("check", run, "--only", "kv_events")
        assert [(c["name"], c["verdict"]) for c in again["checks"]] == [("kv_events", "pass")]
        text = sandbox.cli("status", run).stdout
        assert "http://" in text
        assert "sidecar: running" in text
        assert "is listening" not in sandbox.cli("logs", run).stdout
        assert sandbox.cli("logs", run, "agg-0.1.sidecar").stdout
    finally:
        sandbox.cli("cancel", run, "--wait")
    assert ended(sandbox, run)["state"] == "cancelled"
    assert sandbox.cli.json("status", run)["outcome"] == "cancelled"
    assert sandbox.cli("check", run, code=2).stderr


def test_the_planned_ports_are_the_ones_that_listen(sandbox: Sandbox) -> None:
    """Every port that the engines and sidecars bind on purpose lies inside a claim of their node."""
    run = sandbox.apply(EXAMPLE)["run"]
    try:
        plan = json.loads((sandbox.run_dir(run) / "plan.json").read_text())
        for line in (sandbox.run_dir(run) / "state/nodes.tsv").read_text().splitlines():
            index, name, _ = line.split("\t")
            namespace = f"srtctl-{sandbox.directory.name}-{name.rpartition('-')[2]}"
            out = subprocess.run(
                ["ip", "netns", "exec", namespace, "ss", "-Hltn"], capture_output=True, text=True, check=True
            ).stdout
            listening = {int(row.split()[3].rpartition(":")[2]) for row in out.splitlines()}
            claimed = {
                c["first"] + i: c["purpose"]
                for c in plan["claims"]
                if c["node"] == int(index)
                for i in range(c["count"])
            }
            used = {claimed[port] for port in listening if port in claimed}
            assert {"http", "grpc", "system", "kv_events"} <= used
            published = [
                p["port"]
                for w in plan["workers"]
                for q in w["processes"]
                if q["node"] == int(index)
                for p in q["publishers"]
            ]
            assert set(published) <= listening
    finally:
        sandbox.cli("cancel", run, "--wait")


def test_killing_the_followers_sidecar_stops_the_whole_worker(sandbox: Sandbox) -> None:
    run = sandbox.apply(EXAMPLE)["run"]
    started = next(
        e
        for e in events(sandbox, run)
        if e["event"] == "started" and (e.get("process"), e.get("part")) == ("agg-0.1", "sidecar")
    )
    os.kill(started["pid"], signal.SIGKILL)
    end = ended(sandbox, run)
    assert (end["state"], end["exit_code"]) == ("failed", 1)
    assert "agg-0.1 sidecar on sandbox-1 was killed by SIGKILL" in end["cause"]
    status = sandbox.cli.json("status", run)
    assert status["outcome"] == "failed"
    assert "agg-0.1 sidecar on sandbox-1 was killed by SIGKILL" in status["cause"]
    exits = {p.name: p.read_text().strip() for p in (sandbox.run_dir(run) / "state").glob("agg-0.*.exit")}
    assert set(exits) == {f"agg-0.{n}.{part}.exit" for n in (0, 1) for part in ("engine", "sidecar")}
    assert exits["agg-0.1.sidecar.exit"] == "137"


def test_an_engine_that_reports_one_rank_fails_quickly_with_the_sidecars_own_words(sandbox: Sandbox) -> None:
    status = sandbox.apply(EXAMPLE, code=1, SRTCTL_SIM_FAULT="report_dp_size=1")
    assert status["outcome"] == "failed"
    assert "agg-0.1 sidecar" in status["cause"]
    assert "KV source rank 1 is outside dp_size 1" in status["cause"]
    assert not any(e["event"] == "gate_passed" for e in events(sandbox, status["run"]))
    assert ended(sandbox, status["run"])["state"] == "failed"


def test_a_silent_publisher_fails_exactly_the_kv_events_check(sandbox: Sandbox) -> None:
    short = ("--set", "checks.publishers.timeout=2", "--set", "checks.kv_events.timeout=3")
    status = sandbox.apply(EXAMPLE, *short, code=3, SRTCTL_SIM_FAULT="silent_kv=1")
    checks = json.loads((sandbox.run_dir(status["run"]) / "checks.json").read_text())
    assert {c["name"]: c["verdict"] for c in checks["checks"]} == {
        "placement": "pass",
        "registration": "pass",
        "rank_routing": "pass",
        "publishers": "skip",
        "kv_events": "fail",
        "cache_reuse": "skip",
        "load": "pass",
    }
    failed = [t for c in checks["checks"] for t in c["targets"] if t["verdict"] == "fail"]
    assert [(t["worker"], t["dp_rank"]) for t in failed] == [("agg-0", 1)]
    assert "agg-0 rank 1" in status["cause"]
    assert ended(sandbox, status["run"])["exit_code"] == 3


def test_a_check_that_only_warns_lets_it_serve(sandbox: Sandbox) -> None:
    status = sandbox.apply(
        EXAMPLE,
        "--set",
        "checks.kv_events={on_failure: warn, timeout: 3}",
        "--set",
        "checks.publishers.timeout=2",
        SRTCTL_SIM_FAULT="silent_kv=0",
    )
    sandbox.cli("cancel", status["run"], "--wait")
    assert status["phase"] == "serving"
    assert json.loads((sandbox.run_dir(status["run"]) / "checks.json").read_text())["verdict"] == "warn"


def test_a_rendered_bundle_runs_by_hand(sandbox: Sandbox) -> None:
    name = "by hand 100%j"  # Slurm reads blanks and percent signs its own way
    directory = sandbox.directory / "runs" / name
    sandbox.cli("render", EXAMPLE, "--to", str(directory))
    job = sandbox.slurm("sbatch", "--parsable", str(directory / "job.sbatch")).strip()
    wait_until("serving", lambda: '"event":"serving"' in _text(directory / "events/job.jsonl"))
    assert json.loads((directory / "checks.json").read_text())["verdict"] == "pass"
    sandbox.slurm("scancel", job)
    assert ended(sandbox, name)["state"] == "cancelled"
    assert (directory / f"logs/job.{job}.log").exists()
    assert (directory / "logs/agg-0.log").exists()
    # The same bundle again: what the first job left moves aside.
    second = sandbox.slurm("sbatch", "--parsable", str(directory / "job.sbatch")).strip()
    wait_until("the second job", lambda: _text(directory / "state/job_id").strip() == second)
    wait_until("serving", lambda: '"event":"serving"' in _text(directory / "events/job.jsonl"))
    assert (directory / f"attempts/{job}/state/end.json").exists()
    sandbox.slurm("scancel", second)
    assert ended(sandbox, name)["state"] == "cancelled"


def test_a_busy_port_fails_the_job_with_claim_node_and_holder(sandbox: Sandbox) -> None:
    """Somebody already listens on node 1's gRPC port: named before anything starts."""
    namespace = f"srtctl-{sandbox.directory.name}-1"
    holder = subprocess.Popen(
        ["nsenter", f"--net=/run/netns/{namespace}", "python3", "-c",
         "import socket,time; s=socket.socket(); s.bind(('0.0.0.0',9100)); s.listen(); print('up', flush=True); time.sleep(600)"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        status = sandbox.apply(EXAMPLE, code=1)
    finally:
        holder.kill()
        holder.communicate()
    assert "port 9100 on sandbox-1 (grpc of agg-0.1) is already taken by process" in status["cause"]
    assert str(holder.pid) in status["cause"]
    assert not any(e["event"] == "step_started" for e in events(sandbox, status["run"]))


def test_the_time_limit_ends_it_cleanly(sandbox: Sandbox) -> None:
    """USR1 comes 90 s before the limit, and up to 60 s earlier than asked for."""
    run = sandbox.apply(EXAMPLE, "--set", "slurm.time_limit=00:03:00")["run"]
    end = ended(sandbox, run)
    assert (end["state"], end["exit_code"]) == ("time_limit", 0)


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_nothing_of_a_run_is_left_in_tmp(sandbox: Sandbox) -> None:
    before = set(Path("/tmp").iterdir())
    run = sandbox.apply(EXAMPLE)["run"]
    sandbox.cli("cancel", run, "--wait")
    ended(sandbox, run)
    new = {p.name for p in set(Path("/tmp").iterdir()) - before}
    assert not [n for n in new if n.startswith("srtctl-")]


@pytest.mark.parametrize("fault", ["exit_at_start=7@1"])
def test_an_engine_that_dies_at_start_is_named(sandbox: Sandbox, fault: str) -> None:
    status = sandbox.apply(EXAMPLE, code=1, SRTCTL_SIM_FAULT=fault)
    assert "agg-0.1 engine on sandbox-1 exited with 7" in status["cause"]
