"""First failing layer first: what rests on a failed check is skipped because of it, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from srtctl.checks.__main__ import main
from srtctl.checks.model import Target
from srtctl.checks.runner import CHECKS

from .running_checks import DEPLOYMENT, ONE_LOOK, ranks, run_all
from .scenario import AGG0, PREFILL0, Scenario, agg, disaggregated, running


def full() -> Scenario:
    """Everything but the checks that look at nodes and sockets."""
    scenario = agg()
    scenario.add_check("cache_reuse", ranks("agg-0", "agg-1", "agg-2"), repeats=6)
    scenario.add_check("load", DEPLOYMENT, requests=4, concurrency=2)
    return scenario


def skipped(checks: dict[str, dict[str, object]], name: str) -> list[tuple[str, int]]:
    targets = checks[name]["targets"]
    assert isinstance(targets, list)
    return [(t["worker"], t["dp_rank"]) for t in targets if t["verdict"] == "skip"]


def test_a_check_needs_only_checks_that_run_before_it() -> None:
    seen: set[str] = set()
    for check in CHECKS:
        assert set(check.needs) <= seen
        seen.add(check.name)


def test_a_silent_rank_leaves_the_load_to_be_proven(tmp_path: Path) -> None:
    scenario = full()
    scenario.lost[(AGG0, 1)] = float("inf")
    checks = run_all(scenario, tmp_path)
    assert {name: check["verdict"] for name, check in checks.items()} == {
        "registration": "pass",
        "rank_routing": "pass",
        "kv_events": "fail",
        "cache_reuse": "skip",
        "load": "pass",
    }
    assert skipped(checks, "cache_reuse") == [("agg-0", 1)]
    assert checks["cache_reuse"]["reason"].startswith("because kv_events failed: agg-0 rank 1: ")


def test_a_rank_that_is_not_routed_to_takes_the_load_with_it(tmp_path: Path) -> None:
    scenario = full()
    scenario.errors[(AGG0, 1)] = (500, "boom")
    checks = run_all(scenario, tmp_path)
    assert [name for name, check in checks.items() if check["verdict"] == "fail"] == ["rank_routing"]
    for name in ("kv_events", "cache_reuse"):
        assert skipped(checks, name) == [("agg-0", 1)]
        assert checks[name]["reason"].startswith("because rank_routing failed: ")  # the first cause, not the nearest
    assert checks["load"]["reason"].startswith("because rank_routing failed: agg-0 rank 1: HTTP 500")


def test_a_broken_prefill_rank_is_no_fault_of_its_decode_partner(tmp_path: Path) -> None:
    scenario = disaggregated()
    scenario.errors[(PREFILL0, 1)] = (500, "boom")
    scenario.add_check("transfer", ranks("prefill-0", "decode-0"))
    checks = run_all(scenario, tmp_path)
    failed = [
        (name, t["worker"], t["dp_rank"])
        for name, check in checks.items()
        for t in check["targets"]
        if t["verdict"] == "fail"
    ]
    assert failed == [("rank_routing", "prefill-0", 1)]
    assert skipped(checks, "kv_events") == [("prefill-0", 1)]


def test_through_runs_up_to_a_check_whichever_are_planned(tmp_path: Path) -> None:
    assert list(run_all(full(), tmp_path, "--through", "rank_routing")) == ["registration", "rank_routing"]
    assert list(run_all(full(), tmp_path, "--through", "publishers")) == ["registration", "rank_routing"]


def test_through_an_unknown_check_exits_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*full().write(tmp_path), "--through", "nothing"], ONE_LOOK) == 2
    assert (
        "--through nothing: there is no such check, there are placement, capabilities, registration"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(("fault", "words"), [(True, "agg-0 rank 1: HTTP 500 from the frontend: boom"), (False, "\n")])
def test_the_cause_is_one_line_on_stdout(
    fault: bool, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = agg()
    if fault:
        scenario.errors[(AGG0, 1)] = (500, "boom")
    with running(scenario):
        main([*scenario.write(tmp_path), "--cause"], ONE_LOOK)
    printed = capsys.readouterr()
    assert printed.out.startswith(words)
    assert printed.out.count("\n") == 1
    assert ("    cause:  the engine behind agg-0 rank 1" in printed.err) == fault


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (Target("a", 0), Target("a", 0), True),
        (Target("a", 0), Target("a", 1), False),
        (Target("a", 0), Target("b", 0), False),
        (Target("a"), Target("a", 1), True),
        (Target("a", 1), Target("a"), True),
        (Target("a"), Target("b", 1), False),
        (Target(""), Target("b", 1), True),
        (Target("a"), Target(""), True),
    ],
)
def test_targets_touch(one: Target, other: Target, expected: bool) -> None:
    assert one.touches(other) == expected


@pytest.mark.parametrize(
    ("target", "text"), [(Target("a", 0), "a rank 0"), (Target("a"), "a"), (Target(""), "the deployment")]
)
def test_targets_in_words(target: Target, text: str) -> None:
    assert str(target) == text
