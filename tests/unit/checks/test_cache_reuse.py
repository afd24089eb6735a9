from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .running_checks import ranks, run_only
from .scenario import AGG0, AGG1, Scenario, agg, disaggregated


def test_repeats_are_spread_over_the_ranks(tmp_path: Path) -> None:
    scenario = agg()
    scenario.add_check("cache_reuse", ranks("agg-0", "agg-1"), repeats=7)
    check = run_only(scenario, tmp_path, "cache_reuse")
    assert check["verdict"] == "pass"
    assert [t["evidence"]["repeats"] for t in check["targets"]] == [2, 2, 2, 1]
    assert [t["message"] for t in check["targets"]][3] == "1 of 1 repeats hit its cache"


def test_no_rank_passes_without_a_repeat(tmp_path: Path) -> None:
    scenario = agg()
    scenario.add_check("cache_reuse", ranks("agg-0", "agg-1"), repeats=1)
    check = run_only(scenario, tmp_path, "cache_reuse")
    assert [t["evidence"]["repeats"] for t in check["targets"]] == [1, 1, 1, 1]


def test_28_is_the_default_and_prefill_ranks_are_told_by_their_leg(tmp_path: Path) -> None:
    scenario = disaggregated()
    scenario.add_check("cache_reuse", ranks("prefill-0"))
    check = run_only(scenario, tmp_path, "cache_reuse")
    assert [t["evidence"]["hits"] for t in check["targets"]] == [14, 14]


MISSES: dict[str, tuple[Callable[[Scenario], object], str]] = {
    "another rank": (
        lambda s: setattr(s, "unpinned_to", (AGG1, 0)),
        "agg-0 rank 1: 0 of 2 repeats hit its cache: a repeat went to another rank",
    ),
    "nothing stored": (
        lambda s: s.lost.update({(AGG0, 1): float("inf")}),
        "agg-0 rank 1: the router never knew a prompt that it had answered",
    ),
    "the engine has it no more": (
        lambda s: s.forgetful.add((AGG0, 1)),
        "agg-0 rank 1: 0 of 2 repeats hit its cache: the router sent a repeat to the right rank, but the engine had none",
    ),
    "a rank that fails": (lambda s: s.errors.update({(AGG0, 1): (500, "boom")}), "agg-0 rank 1: HTTP 500"),
    "not registered": (lambda s: s.entries.clear(), "agg-0 rank 1: not registered"),
}


@pytest.mark.parametrize("name", MISSES)
def test_a_miss_is_counted_and_told(name: str, tmp_path: Path) -> None:
    change, words = MISSES[name]
    scenario = agg()
    change(scenario)
    scenario.add_check("cache_reuse", ranks("agg-0"), repeats=4)
    check = run_only(scenario, tmp_path, "cache_reuse")
    target = check["targets"][1]
    assert target["verdict"] == "fail"
    assert target["message"].startswith(words)
