"""What Slurm says about a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Stage = Literal["waiting", "active", "ending", "ended"]

# Every job state of the squeue manual page (22.05 to 25.11) and what it means for a launch.
STAGES: dict[str, Stage] = {
    "PENDING": "waiting",
    "REQUEUED": "waiting",
    "REQUEUE_FED": "waiting",
    "REQUEUE_HOLD": "waiting",
    "RESV_DEL_HOLD": "waiting",
    "SPECIAL_EXIT": "waiting",
    "CONFIGURING": "active",
    "EXPEDITING": "active",
    "POWER_UP_NODE": "active",
    "RESIZING": "active",
    "RUNNING": "active",
    "SIGNALING": "active",
    "STOPPED": "active",
    "SUSPENDED": "active",
    "UPDATE_DB": "active",
    "COMPLETING": "ending",
    "STAGE_OUT": "ending",
    "BOOT_FAIL": "ended",
    "CANCELLED": "ended",
    "COMPLETED": "ended",
    "DEADLINE": "ended",
    "FAILED": "ended",
    "LAUNCH_FAILED": "ended",
    "NODE_FAIL": "ended",
    "OUT_OF_MEMORY": "ended",
    "PREEMPTED": "ended",
    "RECONFIG_FAIL": "ended",
    "REVOKED": "ended",
    "TIMEOUT": "ended",
}


@dataclass(frozen=True, slots=True)
class JobState:
    """Slurm's answer about one job.

    `kind`: `known` (a state), `gone` (Slurm no longer knows the id) or `unknown` (no answer: nothing can be concluded).
    `state` is the first word of Slurm's state; `by` the uid that cancelled; `exit_code` is `(code, signal)` where Slurm
    told it; `error` says why the answer is unknown.
    """

    kind: Literal["known", "gone", "unknown"]
    state: str = ""
    reason: str = ""
    nodes: str = ""
    exit_code: tuple[int, int] | None = None
    by: str = ""
    error: str = ""

    @property
    def stage(self) -> Stage | None:
        """Where the job is; None when Slurm did not answer. A state that is not in the table counts as active."""
        if self.kind == "gone":
            return "ended"
        return None if self.kind == "unknown" else STAGES.get(self.state, "active")
