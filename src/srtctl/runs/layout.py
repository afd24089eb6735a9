"""The names of all files of a run directory (docs/architecture.md), in one place."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PLAN = "plan.json"
RECORD = "run.json"


@dataclass(frozen=True, slots=True)
class RunDir:
    """A run directory; every property is a path in it, whether it exists or not."""

    root: Path

    @property
    def is_run(self) -> bool:
        """Whether this looks like a bundle or a run: it holds a plan or a submission record."""
        return (self.root / PLAN).is_file() or (self.root / RECORD).is_file()

    @property
    def record(self) -> Path:
        return self.root / RECORD

    @property
    def plan(self) -> Path:
        return self.root / PLAN

    @property
    def script(self) -> Path:
        return self.root / "job.sbatch"

    @property
    def lib(self) -> Path:
        """What the checks are imported from inside the job."""
        return self.root / "lib"

    @property
    def events(self) -> Path:
        return self.root / "events"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def state(self) -> Path:
        return self.root / "state"

    @property
    def nodes(self) -> Path:
        return self.state / "nodes.tsv"

    @property
    def end(self) -> Path:
        return self.state / "end.json"

    @property
    def checks(self) -> Path:
        return self.root / "checks.json"

    @property
    def checks_again(self) -> Path:
        """Results of single checks run on demand: they must not replace the verdict on the whole run."""
        return self.root / "checks-again.json"

    def prepare(self) -> None:
        """Make the folders that the job writes to; without `logs` Slurm fails the job silently (slurm-facts 14)."""
        for folder in (self.logs, self.events, self.state):
            folder.mkdir(parents=True, exist_ok=True)


def job_log(job_id: str) -> str:
    """File name of the job's own log."""
    return f"job.{job_id}.log"


def part_log(process: str, part: str) -> str:
    """File name of the log of one part (engine, sidecar) of a process."""
    return f"{process}.{part}.log"


def step_log(step: str) -> str:
    """File name of the log of one step: a worker, a service or a frontend."""
    return f"{step}.log"
