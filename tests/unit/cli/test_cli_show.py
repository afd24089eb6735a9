"""Runs and checks as text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from srtctl.cli.progress import news
from srtctl.cli.show import SHOWN_TARGETS, check_lines, duration, next_commands, status_lines
from srtctl.runs.model import CheckResult, RunStatus, TargetResult

QUEUED = RunStatus(run="demo-1", name="demo", job_id="41", phase="queued", detail="busy", queued_seconds=3.0)
STARTING = replace(QUEUED, phase="starting", detail="1 of 2 listen", nodes=("n1", "n2"), startup_seconds=65.0)
SERVING = replace(STARTING, phase="serving", detail="", endpoints=("http://n1:8000",))
FAILED = replace(STARTING, phase="ended", outcome="failed", detail="", cause="it broke", look_at="agg-0.1.sidecar")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.9, "59 s"), (60, "1 min 00 s"), (185, "3 min 05 s"), (3600, "1 h 00 min"), (7800, "2 h 10 min")],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("status", "commands"),
    [
        (QUEUED, ["srtctl status demo-1", "srtctl logs demo-1 -f", "srtctl cancel demo-1"]),
        (FAILED, ["srtctl logs demo-1 agg-0.1.sidecar"]),
        (replace(FAILED, outcome="completed"), []),
        (replace(QUEUED, phase="ended", outcome="cancelled", queued_seconds=None), []),
        (replace(QUEUED, phase="not submitted", job_id=""), []),
    ],
)
def test_what_to_type_next(status: RunStatus, commands: list[str]) -> None:
    assert next_commands(status) == commands


def test_serving_offers_a_request_and_the_checks() -> None:
    assert next_commands(SERVING)[:2] == ["curl http://n1:8000/v1/models", "srtctl check demo-1"]


def test_the_cause_comes_first() -> None:
    assert status_lines(FAILED)[:2] == ["demo-1: failed", "  cause     it broke"]


def test_a_cause_that_only_repeats_the_state_is_left_out() -> None:
    lines = status_lines(replace(FAILED, outcome="cancelled", cause="cancelled"))
    assert not any("cause" in line for line in lines)


def target(number: int, verdict: str) -> TargetResult:
    return TargetResult(f"agg-0 rank {number}", verdict, verdict)


def test_many_passed_targets_are_counted_and_every_failure_is_shown() -> None:
    targets = [target(n, "pass") for n in range(SHOWN_TARGETS + 5)] + [target(n, "fail") for n in range(100, 120)]
    lines = check_lines([CheckResult("kv_events", "fail", "fail", "", tuple(targets))])
    assert lines[0] == "kv_events  fail"
    assert sum("fail  agg-0 rank" in line for line in lines) == 20
    assert sum("pass  agg-0 rank" in line for line in lines) == SHOWN_TARGETS
    assert lines[-1].strip() == "and 5 more like these"


@pytest.mark.parametrize(
    ("verdict", "on_failure", "word"),
    [("pass", "fail", "pass"), ("fail", "fail", "fail"), ("fail", "warn", "warn"), ("skip", "fail", "skip")],
)
def test_verdicts(verdict: str, on_failure: str, word: str) -> None:
    assert check_lines([CheckResult("x", verdict, on_failure, "why", ())]) == [f"x  {word}  why"]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (None, QUEUED, ["[3 s] queued: busy"]),
        (QUEUED, replace(QUEUED, queued_seconds=9.0), []),
        (QUEUED, replace(QUEUED, detail="held", queued_seconds=9.0), ["[9 s] queued: held"]),
        (QUEUED, STARTING, ["[1 min 05 s] running on n1, n2", "[1 min 05 s] starting: 1 of 2 listen"]),
        (STARTING, replace(SERVING, startup_seconds=66.0), ["[1 min 06 s] serving"]),
        (STARTING, replace(STARTING, cause="it broke"), ["[1 min 05 s] cause: it broke"]),
        (STARTING, replace(FAILED, startup_seconds=None), ["failed"]),
        (
            STARTING,
            replace(STARTING, slurm_error="hung"),
            ["[1 min 05 s] Slurm does not answer (hung); still watching what the run reports"],
        ),
    ],
)
def test_news(before: RunStatus | None, after: RunStatus, said: list[str]) -> None:
    assert [line.strip() for line in news(before, after)] == said
