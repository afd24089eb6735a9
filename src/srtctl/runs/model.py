"""What is known about a run, and what follows from it, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from srtctl.checks.model import Diagnosis
from srtctl.runs.events import Event
from srtctl.runs.record import RunRecord

Phase = Literal[
    "not submitted",
    "queued",
    "starting",
    "waiting for registrations",
    "checking",
    "serving",
    "benchmarking",
    "stopping",
    "ended",
]
# `lost`: it ended, nobody can say how.
Outcome = Literal["completed", "failed", "checks_failed", "cancelled", "time_limit", "node_failure", "lost"]
ProcessState = Literal["not started", "running", "listening", "exited", "stopped", "no end recorded"]


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the allocation."""

    name: str
    address: str


@dataclass(frozen=True, slots=True)
class RunFiles:
    """Everything that lies in a run directory. What is missing is None or empty; `plan` is plan.json as it is."""

    run: str
    plan: Mapping[str, Any] = field(default_factory=dict)
    record: RunRecord | None = None
    nodes: Mapping[int, Node] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    end: Mapping[str, Any] | None = None
    checks: Mapping[str, Any] | None = None

    @property
    def job_id(self) -> str:
        """The job that wrote the events, else the one that was submitted. Empty for a bundle that never was."""
        started = [event.text("job_id") for event in self.events if event.name == "job_started"]
        return next((job for job in reversed(started) if job), self.record.job_id if self.record else "")

    def node_name(self, index: int | None) -> str:
        """The node's name, or `node <index>` while it is not known."""
        if index is None:
            return ""
        return self.nodes[index].name if index in self.nodes else f"node {index}"


@dataclass(frozen=True, slots=True)
class PartStatus:
    """One part of a process (engine, sidecar), or a service or frontend (`part` empty). `last`: its last words;
    `stop_seconds`: from the TERM that stopped it to its end."""

    process: str
    part: str
    node: int
    node_name: str
    state: ProcessState
    code: int | None = None
    last: str = ""
    stop_seconds: float | None = None

    @property
    def label(self) -> str:
        return f"{self.process} {self.part}".rstrip()


@dataclass(frozen=True, slots=True)
class TargetResult:
    """What a check found for one target: a rank of a worker, a worker, or the whole deployment (`target` empty)."""

    target: str
    verdict: str
    message: str
    diagnosis: Diagnosis | None = None

    @property
    def sentence(self) -> str:
        """The message with its target named once (a failure's message names it itself)."""
        if not self.target or self.message.startswith(self.target):
            return self.message
        return ": ".join(text for text in (self.target, self.message) if text)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check of checks.json. `verdict`: pass, fail or skip; `on_failure` warn: its failure does not fail the run."""

    name: str
    verdict: str
    on_failure: str
    reason: str
    targets: tuple[TargetResult, ...]


@dataclass(frozen=True, slots=True)
class RunStatus:
    """A run in words. Times are seconds; None: it has not come to that.

    `cause` is the first failure, `diagnosis` what is behind it where that is known, `detail` what the current phase waits
    for, `client` the step of its benchmark (empty: it only serves), `slurm_error` why Slurm's view is missing: then the
    phase is only what the run itself last reported.
    """

    run: str
    name: str
    job_id: str
    phase: Phase
    outcome: Outcome | None = None
    cause: str = ""
    diagnosis: Diagnosis | None = None
    detail: str = ""
    slurm_error: str = ""
    endpoints: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    parts: tuple[PartStatus, ...] = ()
    verdict: str = ""
    checks: tuple[CheckResult, ...] = ()
    submitted: str = ""
    queued_seconds: float | None = None
    startup_seconds: float | None = None
    benchmark_seconds: float | None = None
    client: str = ""
    look_at: str = ""

    @property
    def ended(self) -> bool:
        return self.phase == "ended"

    def as_dict(self) -> dict[str, Any]:
        """The same as JSON-ready data."""
        return asdict(self)
