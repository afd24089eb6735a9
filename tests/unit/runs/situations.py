"""Building blocks of run situations: a two-node plan, and events in a row."""

from __future__ import annotations

from typing import Any

from srtctl.runs.events import Event
from srtctl.runs.model import Node, RunFiles
from srtctl.runs.record import RunRecord
from srtctl.slurm.states import JobState

SUBMITTED = 1764452000.0
T0 = SUBMITTED + 7.0  # the job starts

PLAN: dict[str, Any] = {
    "version": 1,
    "name": "demo",
    "nodes": 2,
    "runtime": {"python": "python3"},
    "workers": [
        {
            "name": "agg-0",
            "nodes": [0, 1],
            "processes": [
                {"name": "agg-0.0", "node": 0, "ready_port": 9100, "sidecar": {"mode": "serving"}},
                {"name": "agg-0.1", "node": 1, "ready_port": 9100, "sidecar": {"mode": "telemetry"}},
            ],
        }
    ],
    "services": [{"name": "etcd", "node": 0, "port": 2379}],
    "frontends": [{"name": "frontend-0", "node": 0, "port": 8000}],
    "endpoint": {"node": 0, "port": 8000},
    "checks": [{"name": "registration", "on_failure": "fail", "targets": []}, {"name": "kv_events", "targets": []}],
}
NODES = {0: Node("sandbox-0", "10.0.0.1"), 1: Node("sandbox-1", "10.0.0.2")}
RECORD = RunRecord(
    name="demo",
    run="demo-1",
    job_id="12",
    cluster="sandbox",
    slurm_conf="/sandbox/slurm.conf",
    submitted="2025-11-29T21:33:20+00:00",
    recipe="/recipes/demo.yaml",
    version="0.1.0",
)
RUNNING = JobState("known", "RUNNING", nodes="sandbox-[0-1]")
LAST_WORDS = "RuntimeError: KV source rank 1 is outside dp_size 1"


def events(*named: tuple[Any, ...]) -> tuple[Event, ...]:
    """Events a second apart from T0. Each is (name), (name, data) or (name, data, node)."""
    made = []
    for second, (name, *rest) in enumerate(named):
        data, node = (*rest, {}, None)[:2] if len(rest) < 2 else rest
        made.append(Event(T0 + second, name, node if len(rest) > 1 else None, data if rest else {}))
    return tuple(made)


STARTED = (
    ("job_started", {"job_id": "12"}),
    ("nodes_bound",),
    ("claims_free",),
    ("step_started", {"step": "etcd"}),
    ("started", {"process": "etcd", "part": "etcd"}, 0),
    ("listening", {"process": "etcd", "port": 2379}, 0),
    ("step_started", {"step": "agg-0"}),
    ("started", {"process": "agg-0.0", "part": "engine"}, 0),
    ("started", {"process": "agg-0.1", "part": "engine"}, 1),
    ("listening", {"process": "agg-0.0", "port": 9100}, 0),
)
READY = (
    *STARTED,
    ("started", {"process": "agg-0.0", "part": "sidecar"}, 0),
    ("listening", {"process": "agg-0.1", "port": 9100}, 1),
    ("started", {"process": "agg-0.1", "part": "sidecar"}, 1),
    ("processes_ready",),
)
CHECKING = (*READY, ("gate_passed",), ("checks_started",))
SERVING = (*CHECKING, ("checks_ended", {"code": 0}), ("serving",))
SIDECAR_EXITED = ("exited", {"process": "agg-0.1", "part": "sidecar", "code": 1, "last": LAST_WORDS}, 1)


def run(*named: tuple[Any, ...], **other: Any) -> RunFiles:
    """The files of run demo-1 after these events; nodes are known as soon as there are events."""
    made: dict[str, Any] = {
        "run": "demo-1",
        "plan": PLAN,
        "record": RECORD,
        "nodes": NODES if named else {},
        "events": events(*named),
    }
    return RunFiles(**(made | other))


def end(state: str, cause: str = "", code: int = 1) -> dict[str, Any]:
    return {"state": state, "exit_code": code, "cause": cause}
