"""Following one run: its events often, Slurm rarely (slurm-facts 33)."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from srtctl.runs.events import Event, EventFollower
from srtctl.runs.layout import RunDir
from srtctl.runs.load import read_run
from srtctl.runs.model import RunStatus
from srtctl.runs.status import derive
from srtctl.slurm import JobState, Slurm

FIRST_INTERVAL = 2.0
LAST_INTERVAL = 30.0
# How long a file written on a compute node may take to appear here (NFS attribute caches), in seconds.
SETTLE = 5.0


class Watch:
    """Repeated looks at one run. `clock` is monotonic, `wall` the time of day; both in seconds."""

    def __init__(
        self,
        root: Path,
        slurm: Slurm,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._root = root
        self._slurm = slurm
        self._clock = clock
        self._wall = wall
        self._follower = EventFollower(RunDir(root).events)
        self._events: list[Event] = []
        self._files = read_run(root, self._events)
        self._job: JobState | None = None
        self._interval = FIRST_INTERVAL
        self._due = 0.0
        self._settled_by: float | None = None

    @property
    def job(self) -> JobState | None:
        """Slurm's last answer."""
        return self._job

    def hurry(self) -> None:
        """Ask Slurm at the next look, and often from then on."""
        self._interval, self._due = FIRST_INTERVAL, 0.0

    def look(self) -> RunStatus:
        """The status now. Slurm is asked first, when its turn has come: what the files say is then never older."""
        job_id = self._files.job_id
        if job_id and self._clock() >= self._due:
            before = self._job
            self._job = self._slurm.job(job_id)
            self._interval = FIRST_INTERVAL if before != self._job else min(self._interval * 2, LAST_INTERVAL)
            self._due = self._clock() + self._interval
        self._events += self._follower.poll()
        self._files = files = read_run(self._root, self._events, self._files.plan)
        status = derive(files, self._job, self._wall())
        if status.ended and files.end is None and not self._waited_for_record():
            return derive(files, JobState("known", "COMPLETING"), self._wall())
        return status

    def _waited_for_record(self) -> bool:
        """Whether a job that Slurm calls ended was given the time to show its end record."""
        if self._settled_by is None:
            self._settled_by = self._clock() + SETTLE
        return self._clock() >= self._settled_by
