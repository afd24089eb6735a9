"""Which checks a plan carries: by what it contains, then by what the recipe says."""

from __future__ import annotations

import pytest

from srtctl.plan.model import Check, CheckTarget
from tests.support import EXAMPLES, example_id, plan_of

EXAMPLE = {example_id(path): path for path in EXAMPLES}
ALL = ("placement", "registration", "rank_routing", "publishers", "kv_events", "cache_reuse", "load")
WITH_TRANSFER = (*ALL[:-1], "transfer", "load")


def selected(example: str, *overrides: str) -> dict[str, Check]:
    return {check.name: check for check in plan_of(EXAMPLE[example], overrides=overrides).checks}


@pytest.mark.parametrize(
    ("example", "overrides", "expected"),
    [
        ("sglang-attention-dp-2n", (), ALL),
        ("sglang-ordinary-dp-2n", (), ALL),
        ("sglang-attention-dp-4n", (), WITH_TRANSFER),
        ("sglang-ordinary-dp-4n", (), WITH_TRANSFER),
        (
            "sglang-attention-dp-2n",
            ("roles.agg.kv_events=false",),
            ("placement", "registration", "rank_routing", "load"),
        ),
        (
            "sglang-attention-dp-2n",
            ("frontend.args.router-mode=round-robin", "roles.agg.kv_events=false"),
            ("placement", "registration", "load"),
        ),
        ("sglang-attention-dp-2n", ("checks.load=false", "checks.placement=false"), ALL[1:-1]),
        ("sglang-attention-dp-2n", ("checks=false",), ()),
    ],
)
def test_checks_select_themselves(example: str, overrides: tuple[str, ...], expected: tuple[str, ...]) -> None:
    assert tuple(selected(example, *overrides)) == expected


def test_targets() -> None:
    checks = selected("sglang-attention-dp-4n")
    prefill, decode = ([CheckTarget(name, rank) for rank in (0, 1)] for name in ("prefill-0", "decode-0"))
    assert checks["placement"].targets == (CheckTarget("prefill-0", None), CheckTarget("decode-0", None))
    for name in ("registration", "rank_routing", "transfer"):
        assert checks[name].targets == (*prefill, *decode)
    for name in ("publishers", "kv_events", "cache_reuse"):
        assert checks[name].targets == tuple(prefill)
    assert checks["load"].targets == (CheckTarget("", None),)


def test_decode_publishers_are_listened_to_though_nothing_indexes_them() -> None:
    checks = selected("sglang-ordinary-dp-4n")
    workers = ("prefill-0", "prefill-1", "decode-0", "decode-1")
    assert [t.worker for t in checks["publishers"].targets] == [name for name in workers for _ in (0, 1)]
    assert {t.worker for t in checks["kv_events"].targets} == {"prefill-0", "prefill-1"}


def test_settings_of_one_check() -> None:
    checks = selected(
        "sglang-attention-dp-2n",
        "checks.load={requests: 200, concurrency: 16, on_failure: warn}",
        "checks.kv_events.timeout=5",
    )
    assert (checks["load"].settings, checks["load"].on_failure) == ({"requests": 200, "concurrency": 16}, "warn")
    assert checks["cache_reuse"].settings == {"repeats": 28}
    assert (checks["kv_events"].settings, checks["kv_events"].timeout) == ({}, 5)
