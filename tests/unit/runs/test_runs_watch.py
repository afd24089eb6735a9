"""Following a run: how often Slurm is asked, and when an end counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from situations import PLAN, RECORD

from srtctl.runs.layout import RunDir
from srtctl.runs.record import write_record
from srtctl.runs.watch import SETTLE, Watch
from srtctl.slurm import JobState, Slurm


class FakeSlurm(Slurm):
    """Answers what it is told to and counts."""

    def __init__(self) -> None:
        super().__init__({})
        self.answer = JobState("known", "PENDING", "Priority")
        self.asked = 0

    def job(self, job_id: str) -> JobState:
        assert job_id == "12"
        self.asked += 1
        return self.answer


class Bench:
    """A run directory, a Slurm and a clock in one hand."""

    def __init__(self, root: Path) -> None:
        self.run = RunDir(root)
        self.run.prepare()
        self.run.plan.write_text(json.dumps(PLAN))
        write_record(self.run.record, RECORD)
        self.slurm = FakeSlurm()
        self.now = 0.0
        self.watch = Watch(root, self.slurm, clock=lambda: self.now, wall=lambda: RECORD.submitted_at + self.now)

    def event(self, name: str) -> None:
        with (self.run.events / "job.jsonl").open("a") as file:
            file.write(
                json.dumps({"ts": RECORD.submitted_at + self.now, "node": None, "event": name, "job_id": "12"}) + "\n"
            )


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "demo-1")


def test_slurm_is_asked_less_and_less_often(bench: Bench) -> None:
    for second in range(600):
        bench.now = float(second)
        assert bench.watch.look().phase == "queued"
    assert bench.slurm.asked <= 25


def test_events_need_no_answer_from_slurm(bench: Bench) -> None:
    bench.watch.look()
    asked = bench.slurm.asked
    bench.slurm.answer = JobState("known", "RUNNING")
    bench.now = 2.0
    bench.watch.look()
    for name, phase in (
        ("job_started", "starting"),
        ("processes_ready", "waiting for registrations"),
        ("serving", "serving"),
    ):
        bench.event(name)
        assert bench.watch.look().phase == phase
    assert bench.slurm.asked == asked + 1


def test_an_end_without_a_record_counts_only_after_a_while(bench: Bench) -> None:
    bench.event("job_started")
    bench.slurm.answer = JobState("known", "FAILED", exit_code=(1, 0))
    assert bench.watch.look().phase == "stopping"
    bench.now = SETTLE / 2
    assert bench.watch.look().phase == "stopping"
    bench.now = SETTLE
    assert bench.watch.look().outcome == "failed"


def test_a_record_that_appears_late_tells_the_end(bench: Bench) -> None:
    bench.event("job_started")
    bench.slurm.answer = JobState("known", "COMPLETED", exit_code=(0, 0))
    assert bench.watch.look().phase == "stopping"
    bench.run.end.write_text('{"state": "completed", "exit_code": 0, "cause": "done"}')
    assert bench.watch.look().outcome == "completed"
