"""From the files of a run and Slurm's answer to its status. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast, get_args

from srtctl.runs.causes import (
    SLURM_KNOWS_BETTER,
    Failure,
    check_results,
    failed_checks,
    first_diagnosis,
    first_failure,
    slurm_ending,
)
from srtctl.runs.model import Outcome, PartStatus, Phase, RunFiles, RunStatus
from srtctl.runs.parts import part_statuses
from srtctl.slurm.states import JobState
from srtctl.slurm.words import pending_in_words

# The phase that begins with an event; the last one counts.
MILESTONES: dict[str, Phase] = {
    "job_started": "starting",
    "processes_ready": "waiting for registrations",
    "gate_passed": "checking",
    "checks_started": "checking",
    "serving": "serving",
    "client_started": "benchmarking",
    "gate_failed": "stopping",
    "stopping": "stopping",
    "job_ended": "ended",
}


def derive(files: RunFiles, slurm: JobState | None, now: float) -> RunStatus:
    """The status of a run at `now` (seconds since the epoch). `slurm` is None where Slurm was not asked."""
    phase = _phase(files, slurm)
    outcome, cause = _ending(files, slurm) if phase == "ended" else (None, "")
    checks = check_results(files.checks)
    failure, diagnosis = _failure(files, outcome, phase), None
    if outcome == "checks_failed":
        cause, diagnosis = failed_checks(checks) or cause, first_diagnosis(checks)
    elif failure:
        cause, diagnosis = failure.words, failure.diagnosis
    parts = part_statuses(files, ended=phase == "ended")
    return RunStatus(
        run=files.run,
        name=files.plan.get("name") or (files.record.name if files.record else files.run),
        job_id=files.job_id,
        phase=phase,
        outcome=outcome,
        cause=cause,
        diagnosis=diagnosis,
        detail=_detail(phase, slurm, files, parts),
        slurm_error=slurm.error if slurm and slurm.kind == "unknown" else "",
        endpoints=_endpoints(files) if phase in ("checking", "serving", "benchmarking") else (),
        nodes=tuple(files.nodes[index].name for index in sorted(files.nodes)),
        parts=parts,
        verdict=(files.checks or {}).get("verdict") or "",
        checks=checks,
        submitted=files.record.submitted if files.record else "",
        queued_seconds=_queued(files, phase, now),
        startup_seconds=_startup(files, phase, now),
        benchmark_seconds=_benchmark(files, phase, now),
        client=(files.plan.get("client") or {}).get("name", ""),
        look_at=failure.look_at if failure else "",
    )


def _phase(files: RunFiles, slurm: JobState | None) -> Phase:
    stage = slurm.stage if slurm else None
    if not files.job_id:
        return "not submitted"
    if stage == "waiting":
        return "queued"
    reached = [MILESTONES[event.name] for event in files.events if event.name in MILESTONES]
    if "ended" in reached or stage == "ended":
        return "ended"
    # The job writes its end record before it stops what it started.
    if files.end is not None:
        return "stopping" if stage in ("active", "ending") else "ended"
    if stage == "ending":
        return "stopping"
    if reached:
        return reached[-1]
    return "starting" if stage == "active" else "queued"


def _end_record(files: RunFiles) -> dict[str, Any] | None:
    """state/end.json, or the same facts from the job's last event where the file is not visible yet."""
    if files.end is not None:
        return dict(files.end)
    return next((dict(event.data) for event in reversed(files.events) if event.name == "job_ended"), None)


def _ending(files: RunFiles, slurm: JobState | None) -> tuple[Outcome, str]:
    record = _end_record(files)
    last = files.events[-1].name if files.events else ""
    if record is None:
        return slurm_ending(slurm or JobState("gone"), last)
    state = str(record.get("state"))
    if state == "cancelled" and slurm and slurm.state in SLURM_KNOWS_BETTER:
        return slurm_ending(slurm, last)
    outcome = cast(Outcome, state) if state in get_args(Outcome) else "failed"
    return outcome, str(record.get("cause") or "")


def _failure(files: RunFiles, outcome: Outcome | None, phase: Phase) -> Failure | None:
    if phase in ("not submitted", "queued"):  # the events are those of an earlier attempt
        return None
    if phase == "ended" and outcome not in ("failed", "lost"):
        return None
    return first_failure(files, failed=outcome == "failed")


def _detail(phase: Phase, slurm: JobState | None, files: RunFiles, parts: Sequence[PartStatus]) -> str:
    """What it is waiting for, in words."""
    if phase == "queued":
        return pending_in_words(slurm.reason) if slurm and slurm.kind == "known" else ""
    if slurm and slurm.stage == "active" and slurm.state != "RUNNING":
        return f"Slurm reports {slurm.state}"
    if phase == "waiting for registrations":
        return next((e.text("reason") for e in reversed(files.events) if e.name == "gate_waiting"), "")
    engines = _engines(files)
    listening = sum(part.state == "listening" and part.part == "engine" for part in parts)
    return f"{listening} of {engines} engine processes listen" if phase == "starting" and engines else ""


def _engines(files: RunFiles) -> int:
    return sum(len(worker["processes"]) for worker in files.plan.get("workers", ()))


def _endpoints(files: RunFiles) -> tuple[str, ...]:
    endpoint = files.plan.get("endpoint")
    node = files.nodes.get(endpoint["node"]) if endpoint else None
    if not endpoint or not node:
        return ()
    host = f"[{node.address}]" if ":" in node.address else node.address
    return (f"http://{host}:{endpoint['port']}",)


def _at(files: RunFiles, name: str) -> float | None:
    return next((event.ts for event in files.events if event.name == name), None)


def _queued(files: RunFiles, phase: Phase, now: float) -> float | None:
    if files.record is None:
        return None
    until = now if phase == "queued" else _at(files, "job_started")
    return None if until is None else max(0.0, until - files.record.submitted_at)


def _startup(files: RunFiles, phase: Phase, now: float) -> float | None:
    began, serving = _at(files, "job_started"), _at(files, "serving")
    if began is None or phase == "queued" or (serving is None and phase in ("ended", "stopping")):
        return None
    return max(0.0, (now if serving is None else serving) - began)


def _benchmark(files: RunFiles, phase: Phase, now: float) -> float | None:
    began, ended = _at(files, "client_started"), _at(files, "client_ended") or _at(files, "stopping")
    return None if began is None or phase == "queued" else max(0.0, (now if ended is None else ended) - began)
