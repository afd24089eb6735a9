"""Check results as JUnit XML."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

from srtctl.cli.junit import junit

RANK = {"worker": "agg-0", "dp_rank": 1, "evidence": {}}
DIAGNOSIS = {"cause": "the <engine> & its sidecar disagree", "remedy": "upgrade"}


def suites(*checks: dict[str, Any]) -> list[ET.Element]:
    full = [{"on_failure": "fail", "seconds": 1.25, "reason": "", **check} for check in checks]
    root = ET.fromstring(junit("run-1", {"version": 1, "seconds": 2.5, "checks": full}))
    assert (root.tag, root.get("name"), root.get("time")) == ("testsuites", "srtctl check run-1", "2.500")
    return list(root)


def test_a_suite_a_check_and_a_case_a_target() -> None:
    (suite,) = suites(
        {
            "name": "kv_events",
            "verdict": "fail",
            "targets": [
                {**RANK, "dp_rank": 0, "verdict": "pass", "message": "known"},
                {**RANK, "verdict": "fail", "message": "agg-0 rank 1: silent", "diagnosis": DIAGNOSIS},
                {**RANK, "dp_rank": 2, "verdict": "skip", "message": "because"},
            ],
        }
    )
    counts = {name: suite.get(name) for name in ("name", "tests", "failures", "skipped", "time")}
    assert counts == {"name": "kv_events", "tests": "3", "failures": "1", "skipped": "1", "time": "1.250"}
    assert [case.get("name") for case in suite] == ["agg-0 rank 0", "agg-0 rank 1", "agg-0 rank 2"]
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert failure.get("message") == "agg-0 rank 1: silent"
    assert failure.text == "agg-0 rank 1: silent\ncause: the <engine> & its sidecar disagree\nremedy: upgrade"


def test_a_failure_that_only_warns_is_no_failure() -> None:
    target = {**RANK, "verdict": "fail", "message": "silent"}
    (suite,) = suites({"name": "kv_events", "verdict": "fail", "on_failure": "warn", "targets": [target]})
    assert suite.get("failures") == "0"
    assert suite.findtext("testcase/system-out") == "warning: silent"


def test_what_is_wrong_apart_from_any_target_is_a_case_too() -> None:
    target = {**RANK, "verdict": "pass", "message": "registered"}
    (suite,) = suites({"name": "registration", "verdict": "fail", "reason": "extra registration", "targets": [target]})
    assert [case.get("name") for case in suite] == ["agg-0 rank 1", "deployment"]
    assert suite.get("failures") == "1"
