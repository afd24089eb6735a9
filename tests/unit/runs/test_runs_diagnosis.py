"""What is behind a failure: from the last words of a process, from the checks, from nothing."""

from __future__ import annotations

from typing import Any

import pytest
from situations import READY, STARTED, T0, end, run

from srtctl.cli.show import check_lines, status_lines
from srtctl.runs.causes import check_results
from srtctl.runs.model import RunFiles
from srtctl.runs.status import derive

NOW = T0 + 100
DIAGNOSIS = {"cause": "two groups", "remedy": "give each its own"}
TARGET = {"worker": "agg-0", "dp_rank": 1, "verdict": "fail", "message": "agg-0 rank 1: wrong", "diagnosis": DIAGNOSIS}
SKIPPED = {"worker": "agg-0", "dp_rank": 1, "verdict": "skip", "message": "because registration failed: wrong"}
CHECKS: dict[str, Any] = {
    "version": 1,
    "verdict": "fail",
    "checks": [
        {"name": "registration", "verdict": "fail", "on_failure": "fail", "reason": "x", "targets": [TARGET]},
        {
            "name": "kv_events",
            "verdict": "skip",
            "on_failure": "fail",
            "reason": SKIPPED["message"],
            "targets": [SKIPPED, SKIPPED],
        },
    ],
}
FOLDED = {
    "process": "agg-0.1",
    "part": "sidecar",
    "code": 1,
    "last": "KV source rank 1 is outside dp_size 1",
    "engine": "SGLang 0.5.21: dp_size=1, attn_dp_size=2; Dynamo 1.6.1",
    "words": "agg-0.1 sidecar on node-b exited with 1: KV source rank 1 is outside dp_size 1",
}
UNREACHED = {
    "process": "frontend-0",
    "port": 8000,
    "last": "NATS not reachable yet; retrying startup connection",
    "words": "frontend-0 frontend on node-a did not listen on port 8000 within 6 s",
}


def test_an_ended_sidecar_is_explained_by_its_engines_words() -> None:
    status = derive(run(*STARTED, ("exited", FOLDED, 1), end=end("failed")), None, NOW)
    assert status.diagnosis is not None
    assert "[SGLang 0.5.21: dp_size=1, attn_dp_size=2]" in status.diagnosis.cause
    assert "(Dynamo 1.6.1)" in status.diagnosis.cause
    assert status.as_dict()["diagnosis"]["remedy"] == status.diagnosis.remedy
    lines = status_lines(status)
    assert f"  why       {status.diagnosis.cause}" in lines
    assert f"  remedy    {status.diagnosis.remedy}" in lines


def test_what_never_listened_is_explained_by_its_last_words() -> None:
    status = derive(run(*STARTED, ("not_listening", UNREACHED, 0), end=end("failed")), None, NOW)
    assert status.diagnosis is not None
    assert "no NATS server answers" in status.diagnosis.cause


@pytest.mark.parametrize(
    "files",
    [
        run(*READY, ("gate_failed", {"reason": "agg-0 rank 1: wrong"}), end=end("failed"), checks=CHECKS),
        run(*READY, end=end("checks_failed", code=3), checks=CHECKS),
    ],
)
def test_failed_checks_bring_their_own_diagnosis(files: RunFiles) -> None:
    diagnosis = derive(files, None, NOW).diagnosis
    assert diagnosis is not None
    assert (diagnosis.cause, diagnosis.remedy) == ("two groups", "give each its own")


@pytest.mark.parametrize(
    "event", [("step_ended", {"step": "etcd", "code": 2}), ("exited", {**FOLDED, "words": "boom"}, 1)]
)
def test_what_is_not_understood_has_none(event: tuple[Any, ...]) -> None:
    status = derive(run(*STARTED, event, end=end("failed")), None, NOW)
    assert status.diagnosis is None
    assert not any("remedy" in line for line in status_lines(status))


def test_a_diagnosis_is_shown_once_and_a_skipped_check_in_one_line() -> None:
    twice = {**CHECKS["checks"][0], "targets": [TARGET, {**TARGET, "dp_rank": 0}]}
    assert check_lines(check_results({"checks": [twice, CHECKS["checks"][1]]})) == [
        "registration  fail",
        "              fail  agg-0 rank 1: wrong",
        "              fail  agg-0 rank 0: agg-0 rank 1: wrong",
        "                    cause: two groups",
        "                    remedy: give each its own",
        "kv_events     skip  because registration failed: wrong",
    ]
