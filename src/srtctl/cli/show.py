"""Runs and check results as text. Pure: each function returns lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from srtctl.runs.model import CheckResult, Outcome, PartStatus, RunStatus

# Passed targets beyond this many are only counted; failures are always all shown.
SHOWN_TARGETS = 8

OUTCOMES: dict[Outcome, str] = {
    "completed": "completed",
    "failed": "failed",
    "checks_failed": "checks failed",
    "cancelled": "cancelled",
    "time_limit": "time limit reached",
    "node_failure": "node failure",
    "lost": "lost",
}


def headline(status: RunStatus) -> str:
    """The state in a word or two; marked where Slurm could not confirm it."""
    words = OUTCOMES[status.outcome] if status.outcome else status.phase
    return f"{words} (as last reported)" if status.slurm_error and not status.ended else words


def status_lines(status: RunStatus) -> list[str]:
    """Everything about one run: the cause first, then where it runs, its checks, and what to type next."""
    lines = [f"{status.run}: {headline(status)}"]
    cause = status.cause if status.cause != headline(status) else ""
    facts = [
        ("cause", cause),
        ("why", status.diagnosis.cause if status.diagnosis else ""),
        ("remedy", status.diagnosis.remedy if status.diagnosis else ""),
        ("slurm", f"no answer: {status.slurm_error}" if status.slurm_error else ""),
        ("now", status.detail),
        ("job", _job(status)),
        *(("endpoint", url) for url in status.endpoints),
    ]
    lines += [f"  {label:<9} {text}" for label, text in facts if text]
    if status.nodes:
        lines.append("  nodes")
        width = max(map(len, status.nodes))
        for index, node in enumerate(status.nodes):
            lines.append(f"    {node:<{width}}  {_parts(part for part in status.parts if part.node == index)}".rstrip())
    if status.checks:
        lines.append(f"  checks    {status.verdict}")
        lines += [f"    {line}" for line in check_lines(status.checks)]
    if commands := next_commands(status):
        lines.append("  next")
        lines += [f"    {command}" for command in commands]
    return lines


def check_lines(checks: Sequence[CheckResult]) -> list[str]:
    """Each check with its verdict, and one line a target with the evidence in words."""
    width = max((len(check.name) for check in checks), default=0)
    lines: list[str] = []
    for check in checks:
        verdict = "warn" if check.verdict == "fail" and check.on_failure == "warn" else check.verdict
        failed = [target for target in check.targets if target.verdict == "fail"]
        reason = "" if failed else check.reason
        lines.append(f"{check.name:<{width}}  {verdict:<4}  {reason}".rstrip())
        others = [target for target in check.targets if target.verdict != "fail"]
        if check.verdict == "skip" and all(target.verdict == "skip" for target in others):
            continue  # for one reason, which stands there
        shown = failed + others[:SHOWN_TARGETS]
        lines += [f"{'':<{width}}  {target.verdict:<4}  {target.sentence}".rstrip() for target in shown]
        for diagnosis in dict.fromkeys(target.diagnosis for target in failed if target.diagnosis):
            lines += [
                f"{'':<{width}}        cause: {diagnosis.cause}",
                f"{'':<{width}}        remedy: {diagnosis.remedy}",
            ]
        if (hidden := len(others) - SHOWN_TARGETS) > 0:
            lines.append(f"{'':<{width}}        and {hidden} more like these")
    return lines


def next_commands(status: RunStatus) -> list[str]:
    """What one would type next."""
    run = status.run
    if status.ended:
        began = status.queued_seconds is not None or bool(status.nodes)  # what never began has no log
        if status.outcome == "completed":
            return [f"srtctl logs {run} {status.client}"] if status.client else []
        return [f"srtctl logs {run} {status.look_at}".rstrip()] if began else []
    if status.phase == "serving":
        models = [f"curl {url}/v1/models" for url in status.endpoints[:1]]
        return [*models, f"srtctl check {run}", f"srtctl logs {run} -f", f"srtctl cancel {run}"]
    follow = f"srtctl logs {run} {status.client} -f" if status.phase == "benchmarking" else f"srtctl logs {run} -f"
    return [f"srtctl status {run}", follow, f"srtctl cancel {run}"] if status.job_id else []


def table_lines(statuses: Sequence[RunStatus]) -> list[str]:
    """One line a run."""
    rows = [("RUN", "STATE", "JOB", "SUBMITTED", "")]
    for status in statuses:
        note = status.cause or next(iter(status.endpoints), "") or status.detail
        rows.append((status.run, headline(status), status.job_id or "-", _clock(status.submitted), note))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    return ["  ".join([*(row[i].ljust(widths[i]) for i in range(4)), row[4]]).rstrip() for row in rows]


def row_dict(status: RunStatus) -> dict[str, Any]:
    """What the list of runs says of one run, as data."""
    keys = ("run", "name", "job_id", "phase", "outcome", "cause", "detail", "slurm_error", "endpoints", "submitted")
    return {key: getattr(status, key) for key in keys}


def duration(seconds: float) -> str:
    """`42 s`, `3 min 05 s`, `2 h 10 min`."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def _job(status: RunStatus) -> str:
    if not status.job_id:
        return ""
    times = [
        f"{label} {duration(seconds)}"
        for label, seconds in (
            ("queued", status.queued_seconds),
            ("start-up", status.startup_seconds),
            ("benchmark", status.benchmark_seconds),
        )
        if seconds is not None
    ]
    return ", ".join([status.job_id, *times])


def _parts(parts: Iterable[PartStatus]) -> str:
    return " · ".join(f"{part.label}: {part.state}{_code(part)}" for part in parts)


def _code(part: PartStatus) -> str:
    return "" if part.code is None else f" ({part.code})"


def _clock(iso: str) -> str:
    return datetime.fromisoformat(iso).strftime("%Y-%m-%d %H:%M") if iso else "-"
