"""Many names in few words."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtctl.plan.names import name_list, ranges, stepped

LISTS = [
    ((), ""),
    (("etcd",), "etcd"),
    (("agg-0.0", "agg-1.0", "agg-2.0"), "agg-[0-2].0"),
    (("agg-0.0", "agg-0.1"), "agg-0.0, agg-0.1"),
    (("agg-0.0", "agg-1.1", "agg-1.0", "agg-0.1"), "agg-[0-1].0, agg-[0-1].1"),
    (("agg-0", "agg-2", "agg-3", "agg-9"), "agg-[0,2-3,9]"),
    (("agg-0", "agg-8", "agg-16"), "agg-[0-16:8]"),
    (("agg-2.0 sidecar", "agg-1.0 sidecar"), "agg-[1-2].0 sidecar"),
    (("node-01", "node-02"), "node-01, node-02"),
    (("frontend-0", "etcd", "frontend-1"), "frontend-[0-1], etcd"),
]


@pytest.mark.parametrize(("names", "text"), LISTS)
def test_name_list(names: tuple[str, ...], text: str) -> None:
    assert name_list(names) == text


@pytest.mark.parametrize(
    ("numbers", "text"),
    [((), ""), ((4,), "4"), ((0, 1, 2, 5), "0-2,5"), ((1, 3, 5), "1-5:2"), ((1, 3), "1,3"), ((0, 1, 2), "0-2")],
)
def test_stepped(numbers: tuple[int, ...], text: str) -> None:
    assert stepped(numbers) == text


def test_ranges_keep_the_order() -> None:
    assert ranges((5, 0, 1)) == "5,0-1"


def expand(text: str) -> set[int]:
    """The numbers that `stepped` wrote."""
    out: set[int] = set()
    for part in text.split(","):
        first, last, step = re.fullmatch(r"(\d+)(?:-(\d+))?(?::(\d+))?", part).groups()  # type: ignore[union-attr]
        out |= set(range(int(first), int(last or first) + 1, int(step or 1)))
    return out


@given(st.sets(st.integers(0, 60), min_size=1))
def test_no_number_is_lost(numbers: set[int]) -> None:
    assert expand(stepped(sorted(numbers))) == numbers
