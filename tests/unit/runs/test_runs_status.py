"""What a run's files and Slurm's answer mean together: one row a situation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from situations import (
    CHECKING,
    LAST_WORDS,
    READY,
    RUNNING,
    SERVING,
    SIDECAR_EXITED,
    STARTED,
    SUBMITTED,
    T0,
    end,
    run,
)

from srtctl.runs.model import Node, RunFiles
from srtctl.runs.status import derive
from srtctl.slurm.states import JobState

NOW = SUBMITTED + 60
SIDECAR_CAUSE = f"agg-0.1 sidecar on sandbox-1 exited with 1: {LAST_WORDS}"
FAILED_CHECKS = {
    "verdict": "fail",
    "checks": [
        {"name": "registration", "verdict": "pass", "on_failure": "fail", "targets": []},
        {
            "name": "kv_events",
            "verdict": "fail",
            "on_failure": "fail",
            "targets": [
                {"worker": "agg-0", "dp_rank": 0, "verdict": "pass", "message": "8 events"},
                {"worker": "agg-0", "dp_rank": 1, "verdict": "fail", "message": "nothing was published on port 5201"},
            ],
        },
        {"name": "extra", "verdict": "fail", "on_failure": "warn", "reason": "slow", "targets": []},
    ],
}
STOPPED_BY_US = ("stopped", {"process": "agg-0.0", "part": "engine", "code": 143}, 0)


def known(state: str, **other: Any) -> JobState:
    return JobState("known", state, **other)


GONE = JobState("gone")
UNKNOWN = JobState("unknown", error="squeue did not answer within 20 s")

# (name, files, Slurm's answer, phase, outcome, cause, detail)
SITUATIONS: list[tuple[str, RunFiles, JobState | None, str, str | None, str, str]] = [
    ("a bundle", run(record=None), None, "not submitted", None, "", ""),
    ("waits", run(), known("PENDING", reason="Priority"), "queued", None, "", "jobs of higher priority are ahead"),
    ("waits, Slurm is silent", run(), UNKNOWN, "queued", None, "", ""),
    ("nodes boot", run(), known("CONFIGURING"), "starting", None, "", "Slurm reports CONFIGURING"),
    ("began", run(*STARTED), RUNNING, "starting", None, "", "1 of 2 engine processes listen"),
    ("processes are up", run(*READY), RUNNING, "waiting for registrations", None, "", ""),
    ("checks run", run(*CHECKING), RUNNING, "checking", None, "", ""),
    ("serves", run(*SERVING), RUNNING, "serving", None, "", ""),
    ("serves, Slurm is silent", run(*SERVING), UNKNOWN, "serving", None, "", ""),
    ("suspended", run(*SERVING), known("SUSPENDED"), "serving", None, "", "Slurm reports SUSPENDED"),
    (
        "submitted by hand",
        run(*SERVING, record=None),
        RUNNING,
        "serving",
        None,
        "",
        "",
    ),
    (
        "a process failed, the others are being stopped",
        run(*READY, SIDECAR_EXITED, ("stopping", {"reason": "x"}), end=end("failed", "x")),
        RUNNING,
        "stopping",
        None,
        SIDECAR_CAUSE,
        "",
    ),
    (
        "a process failed",
        run(*READY, SIDECAR_EXITED, ("stopping", {}), STOPPED_BY_US, ("job_ended", {}), end=end("failed", "x")),
        known("FAILED", exit_code=(1, 0)),
        "ended",
        "failed",
        SIDECAR_CAUSE,
        "",
    ),
    (
        "the end record is not visible yet, the last event is",
        run(*READY, SIDECAR_EXITED, ("job_ended", {"state": "failed", "cause": "x"})),
        known("COMPLETING"),
        "ended",
        "failed",
        SIDECAR_CAUSE,
        "",
    ),
    (
        "the runtime's own words come first",
        run(
            *READY,
            ("exited", {"process": "agg-0.1", "part": "engine", "code": 137, "words": "it was killed"}, 1),
            end=end("failed"),
        ),
        None,
        "ended",
        "failed",
        "it was killed",
        "",
    ),
    (
        "a node's clock is ahead: the failure seems to come after the stop",
        run(*READY, ("stopping", {}), SIDECAR_EXITED, end=end("failed", "x")),
        None,
        "ended",
        "failed",
        SIDECAR_CAUSE,
        "",
    ),
    (
        "an exit with 0 is a failure too",
        run(
            *SERVING, ("exited", {"process": "agg-0.0", "part": "engine", "code": 0, "last": ""}, 0), end=end("failed")
        ),
        None,
        "ended",
        "failed",
        "agg-0.0 engine on sandbox-0 exited with 0",
        "",
    ),
    (
        "a step says less than its process, even when it comes first",
        run(*READY, ("step_ended", {"step": "agg-0", "code": 143}), SIDECAR_EXITED, end=end("failed")),
        None,
        "ended",
        "failed",
        SIDECAR_CAUSE,
        "",
    ),
    (
        "only a step's end is known",
        run(*STARTED, ("step_ended", {"step": "etcd", "code": 2}), end=end("failed")),
        None,
        "ended",
        "failed",
        "step etcd ended with 2",
        "",
    ),
    (
        "a port is taken",
        run(
            ("job_started", {"job_id": "12"}),
            ("port_busy", {"port": 6100, "purpose": "http", "owner": "agg-0.1", "holder": "process 7 (python3)"}, 1),
            ("stopping", {}),
            end=end("failed"),
        ),
        None,
        "ended",
        "failed",
        "port 6100 on sandbox-1 (http of agg-0.1) is already taken by process 7 (python3)",
        "",
    ),
    (
        "the gate",
        run(*READY, ("gate_failed", {"reason": "agg: 1 worker expected, none registered"}), end=end("failed")),
        None,
        "ended",
        "failed",
        "the deployment did not become ready: agg: 1 worker expected, none registered",
        "",
    ),
    (
        "failed, only the record tells",
        run(*STARTED, end=end("failed", "no address")),
        None,
        "ended",
        "failed",
        "no address",
        "",
    ),
    (
        "checks failed",
        run(*CHECKING, ("checks_ended", {"code": 3}), end=end("checks_failed", "see"), checks=FAILED_CHECKS),
        None,
        "ended",
        "checks_failed",
        "check kv_events failed: agg-0 rank 1: nothing was published on port 5201",
        "",
    ),
    (
        "checks failed, no file",
        run(*CHECKING, end=end("checks_failed", "see")),
        None,
        "ended",
        "checks_failed",
        "see",
        "",
    ),
    ("stopped on request", run(*SERVING, end=end("completed", "", 0)), None, "ended", "completed", "", ""),
    (
        "cancelled: what Slurm's TERM ended is no cause",
        run(*SERVING, SIDECAR_EXITED, ("stopping", {}), end=end("cancelled", "cancelled", 0)),
        known("CANCELLED"),
        "ended",
        "cancelled",
        "cancelled",
        "",
    ),
    (
        "the script saw a TERM, Slurm knows that a node was lost",
        run(*SERVING, end=end("cancelled", "cancelled", 0)),
        known("NODE_FAIL", nodes="sandbox-[0-1]"),
        "ended",
        "node_failure",
        "Slurm lost a node of the job (sandbox-[0-1])",
        "",
    ),
    (
        "cancelled while it waited",
        run(),
        known("CANCELLED", by="1000"),
        "ended",
        "cancelled",
        "cancelled through Slurm by user id 1000 before it started",
        "",
    ),
    ("killed", run(*SERVING), known("CANCELLED"), "ended", "cancelled", "cancelled through Slurm", ""),
    (
        "its node died",
        run(*SERVING),
        known("NODE_FAIL", nodes="n[1-2]"),
        "ended",
        "node_failure",
        "Slurm lost a node of the job (n[1-2])",
        "",
    ),
    (
        "out of memory",
        run(*SERVING),
        known("OUT_OF_MEMORY"),
        "ended",
        "failed",
        "it ran out of memory and was killed",
        "",
    ),
    ("out of time", run(*SERVING), known("TIMEOUT"), "ended", "time_limit", "it reached its time limit", ""),
    (
        "the script was killed",
        run(*SERVING),
        known("FAILED", exit_code=(0, 9)),
        "ended",
        "failed",
        "the job script failed: it was killed by signal 9",
        "",
    ),
    (
        "a verdict without a record",
        run(*CHECKING),
        known("FAILED", exit_code=(3, 0)),
        "ended",
        "checks_failed",
        "the checks failed",
        "",
    ),
    (
        "Slurm says COMPLETED, the job never said so",
        run(*SERVING),
        known("COMPLETED", exit_code=(0, 0)),
        "ended",
        "lost",
        "Slurm reports COMPLETED, but the job left no end record (state/end.json)",
        "",
    ),
    (
        "forgotten",
        run(*SERVING),
        GONE,
        "ended",
        "lost",
        "Slurm no longer knows the job and it left no end record; the last it reported was `serving`",
        "",
    ),
    (
        "forgotten, a process had failed",
        run(*SERVING, SIDECAR_EXITED),
        GONE,
        "ended",
        "lost",
        SIDECAR_CAUSE,
        "",
    ),
    (
        "forgotten, never began",
        run(),
        GONE,
        "ended",
        "lost",
        "Slurm no longer knows the job and it left no end record; it never reported anything",
        "",
    ),
    ("Slurm is cleaning up", run(*SERVING), known("COMPLETING"), "stopping", None, "", ""),
    (
        "requeued: waits again, whatever the first attempt said",
        run(*READY, SIDECAR_EXITED, end=end("failed")),
        known("PENDING", reason="BeginTime"),
        "queued",
        None,
        "",
        "its start time has not come (or it was requeued a moment ago)",
    ),
    ("a state nobody knows", run(*STARTED, end=end("exploded", "boom")), None, "ended", "failed", "boom", ""),
]


@pytest.mark.parametrize(
    ("files", "slurm", "phase", "outcome", "cause", "detail"),
    [row[1:] for row in SITUATIONS],
    ids=[row[0] for row in SITUATIONS],
)
def test_situation(
    files: RunFiles, slurm: JobState | None, phase: str, outcome: str | None, cause: str, detail: str
) -> None:
    status = derive(files, slurm, NOW)
    assert (status.phase, status.outcome, status.cause, status.detail) == (phase, outcome, cause, detail)
    assert status.ended is (phase == "ended")


def test_0_53_is_explained() -> None:
    status = derive(run(), known("FAILED", exit_code=(0, 53)), NOW)
    assert status.outcome == "failed"
    assert "the folder of its log is missing" in status.cause


def test_slurm_that_does_not_answer_is_named() -> None:
    assert derive(run(*SERVING), UNKNOWN, NOW).slurm_error == "squeue did not answer within 20 s"


def test_parts() -> None:
    files = run(*READY, SIDECAR_EXITED, ("stopping", {}), STOPPED_BY_US, ("step_ended", {"step": "etcd", "code": 143}))
    found = {part.label: (part.node_name, part.state, part.code) for part in derive(files, RUNNING, NOW).parts}
    assert found == {
        "etcd": ("sandbox-0", "stopped", 143),
        "frontend-0": ("sandbox-0", "not started", None),
        "agg-0.0 engine": ("sandbox-0", "stopped", 143),
        "agg-0.0 sidecar": ("sandbox-0", "running", None),
        "agg-0.1 engine": ("sandbox-1", "listening", None),
        "agg-0.1 sidecar": ("sandbox-1", "exited", 1),
    }
    last = derive(replace(files, end=end("failed")), None, NOW).parts
    assert {part.label for part in last if part.state == "no end recorded"} == {"agg-0.0 sidecar", "agg-0.1 engine"}
    assert {part.last for part in last} == {"", LAST_WORDS}


def test_nodes_have_their_index_until_they_are_bound() -> None:
    assert {part.node_name for part in derive(run(), RUNNING, NOW).parts} == {"node 0", "node 1"}


@pytest.mark.parametrize(
    ("files", "slurm", "queued", "startup"),
    [
        (run(), known("PENDING"), 60.0, None),
        (run(*STARTED), RUNNING, 7.0, NOW - T0),
        (run(*SERVING), RUNNING, 7.0, float(len(SERVING) - 1)),
        (run(*SERVING, end=end("completed")), None, 7.0, float(len(SERVING) - 1)),
        (run(*READY, end=end("failed")), None, 7.0, None),
        (run(*SERVING, record=None), RUNNING, None, float(len(SERVING) - 1)),
        (run(), GONE, None, None),
    ],
)
def test_times(files: RunFiles, slurm: JobState | None, queued: float | None, startup: float | None) -> None:
    status = derive(files, slurm, NOW)
    assert (status.queued_seconds, status.startup_seconds) == (queued, startup)


def test_a_clock_that_is_behind_gives_no_negative_time() -> None:
    assert derive(run(), known("PENDING"), SUBMITTED - 5).queued_seconds == 0.0


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (run(*SERVING), ("http://10.0.0.1:8000",)),
        (run(*CHECKING), ("http://10.0.0.1:8000",)),
        (run(*READY), ()),
        (run(*SERVING, end=end("completed")), ()),
        (run(*SERVING, nodes={0: Node("n", "fd00::1")}), ("http://[fd00::1]:8000",)),
        (run(*SERVING, nodes={}), ()),
    ],
)
def test_endpoints(files: RunFiles, expected: tuple[str, ...]) -> None:
    assert derive(files, None if files.end else RUNNING, NOW).endpoints == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (run(*READY, SIDECAR_EXITED, end=end("failed")), "agg-0.1.sidecar"),
        (run(*STARTED, ("step_ended", {"step": "etcd", "code": 2}), end=end("failed")), "etcd"),
        (run(*READY, ("gate_failed", {"reason": "x"}), end=end("failed")), ""),
    ],
)
def test_which_log_tells_more(files: RunFiles, expected: str) -> None:
    assert derive(files, None, NOW).look_at == expected


def test_the_job_is_the_one_that_wrote_the_events() -> None:
    files = run(("job_started", {"job_id": "44"}), ("serving",))
    assert files.job_id == "44"
    assert run().job_id == "12"


def test_checks_are_kept_in_full() -> None:
    status = derive(run(*SERVING, checks=FAILED_CHECKS), RUNNING, NOW)
    assert status.verdict == "fail"
    assert [check.verdict for check in status.checks] == ["pass", "fail", "fail"]
    assert [(t.target, t.verdict) for t in status.checks[1].targets] == [
        ("agg-0 rank 0", "pass"),
        ("agg-0 rank 1", "fail"),
    ]
