"""A run with a client, as `status`, `logs` and `apply --wait` see it."""

from __future__ import annotations

from typing import Any

import pytest
from situations import PLAN, RUNNING, SERVING, T0, end, run

from srtctl.cli.progress import news
from srtctl.cli.show import next_commands, status_lines
from srtctl.runs.logs import log_names
from srtctl.runs.model import RunFiles
from srtctl.runs.status import derive
from srtctl.slurm.states import JobState

WITH_CLIENT = {**PLAN, "client": {"name": "benchmark", "node": 0, "script": "x\n", "env": {}, "image": ""}}
BEGUN = (
    *SERVING,
    ("client_started", {"step": "benchmark"}),
    ("started", {"process": "benchmark", "part": "client"}, 0),
)
BEGAN = T0 + len(SERVING)
WORDS = "the benchmark exited with 7: ValueError: no"
ENDED = ("client_ended", {"process": "benchmark", "part": "client", "code": 7, "last": "no", "words": WORDS}, 0)
DIED = ("exited", {"process": "agg-0.0", "part": "engine", "code": 137, "words": "agg-0.0 engine was killed"}, 0)
STOPPING = (("stopping", {"reason": "x"}), ("step_ended", {"step": "agg-0", "code": 143}))


def files(*events: tuple[Any, ...], **other: Any) -> RunFiles:
    return run(*events, plan=WITH_CLIENT, **other)


def test_it_is_benchmarking() -> None:
    status = derive(files(*BEGUN), RUNNING, BEGAN + 62)
    assert (status.phase, status.outcome, status.benchmark_seconds, status.client) == (
        "benchmarking",
        None,
        62,
        "benchmark",
    )
    assert status.endpoints == ("http://10.0.0.1:8000",)
    assert [p.state for p in status.parts if p.process == "benchmark"] == ["running"]
    assert "benchmark 1 min 02 s" in "\n".join(status_lines(status))
    assert "srtctl logs demo-1 benchmark -f" in next_commands(status)
    assert news(None, status)[-1].split("] ") == ["  [1 min 02 s", "benchmarking"]


# what happened after the client began, the end record, then outcome, cause, log to look at, seconds it ran
ENDINGS = [
    ([("client_ended", {"process": "benchmark", "part": "client", "code": 0}, 0)], end("completed", "benchmark finished", 0),
     "completed", "benchmark finished", "", 2),
    ([ENDED, ("step_ended", {"step": "benchmark", "code": 7}), *STOPPING], end("failed", WORDS), "failed", WORDS, "benchmark", 2),
    ([ENDED, DIED, *STOPPING], end("failed", "agg-0.0 engine was killed"), "failed", "agg-0.0 engine was killed",
     "agg-0.0.engine", 2),
    ([DIED, *STOPPING], end("failed", "agg-0.0 engine was killed"), "failed", "agg-0.0 engine was killed", "agg-0.0.engine", 3),
    ([("step_ended", {"step": "benchmark", "code": 1}), *STOPPING], end("failed", "x"), "failed",
     "step benchmark ended with 1", "benchmark", 3),
]  # fmt: skip


@pytest.mark.parametrize(("events", "record", "outcome", "cause", "look_at", "seconds"), ENDINGS)
def test_how_it_ended(
    events: list[Any], record: dict[str, Any], outcome: str, cause: str, look_at: str, seconds: float
) -> None:
    status = derive(files(*BEGUN, *events, end=record), JobState("gone"), BEGAN + 600)
    assert (status.outcome, status.cause, status.look_at) == (outcome, cause, look_at)
    assert status.benchmark_seconds == seconds
    shown = f"srtctl logs demo-1 {look_at or 'benchmark'}"
    assert next_commands(status) == [shown]


def test_its_logs_have_its_name() -> None:
    names = log_names(WITH_CLIENT, ["benchmark.log", "benchmark.client.log", "job.1.log"])
    assert names["benchmark"] == ("benchmark.log", "benchmark.client.log")
    assert names["benchmark.client"] == ("benchmark.client.log",)
    assert "benchmark" not in log_names({**PLAN, "client": None}, [])
