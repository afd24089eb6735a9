from __future__ import annotations

from pathlib import Path

from srtctl.checks.context import Limits

from .running_checks import DEPLOYMENT, ONE_LOOK, run_only
from .scenario import AGG0, agg


def test_every_request_is_counted(tmp_path: Path) -> None:
    scenario = agg()
    scenario.add_check("load", DEPLOYMENT, requests=10, concurrency=3)
    check = run_only(scenario, tmp_path, "load")
    (target,) = check["targets"]
    assert (check["verdict"], target["message"]) == ("pass", "10 of 10 requests succeeded, 3 at a time")
    assert len(scenario.requests) == 10
    assert len({body["messages"][0]["content"] for body in scenario.requests}) == 10
    evidence = target["evidence"]
    assert (evidence["succeeded"], evidence["without_tokens"], evidence["completion_tokens"]) == (10, 0, 20)
    assert evidence["answered_by"] == {f"{AGG0}/0": 10}


def test_without_settings_it_is_the_load_of_the_public_validation(tmp_path: Path) -> None:
    scenario = agg()
    scenario.add_check("load", DEPLOYMENT)
    assert run_only(scenario, tmp_path, "load")["targets"][0]["message"] == "40 of 40 requests succeeded, 4 at a time"


def test_failures_are_counted_and_the_commonest_is_named(tmp_path: Path) -> None:
    scenario = agg()
    scenario.errors[(AGG0, 0)] = (500, "boom")
    scenario.add_check("load", DEPLOYMENT, requests=4, concurrency=2)
    (target,) = run_only(scenario, tmp_path, "load")["targets"]
    assert target["verdict"] == "fail"
    assert target["message"] == "4 of 4 requests failed, 4 of them with: HTTP 500 from the frontend: boom"
    assert target["evidence"]["failures"] == {"HTTP 500 from the frontend: boom": 4}


def test_an_answer_without_a_token_is_a_failure(tmp_path: Path) -> None:
    scenario = agg()
    scenario.mute.add((AGG0, 0))
    scenario.add_check("load", DEPLOYMENT, requests=3, concurrency=1)
    (target,) = run_only(scenario, tmp_path, "load")["targets"]
    assert target["message"] == "3 of 3 requests were answered without generating a token"
    assert "without one generated token" in target["diagnosis"]["cause"]


def test_what_there_was_no_time_for_is_a_failure(tmp_path: Path) -> None:
    scenario = agg()
    scenario.add_check("load", DEPLOYMENT, requests=2, concurrency=1)
    (target,) = run_only(scenario, tmp_path, "load", Limits(load=0))["targets"]
    assert "2 of 2 requests failed, 2 of them with: not sent, the time for the load was over" in target["message"]
    assert ONE_LOOK.load > 0
