"""Placement: a table of layouts, and properties over random ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtctl.plan.placement import Request, place

TABLE = [
    # requests, GPUs a node, expected [(name, nodes, GPU indices per node)]
    ([Request("agg", 1, 2, 0, 2)], 1, [("agg-0", (0, 1), ((0,), (0,)))]),
    ([Request("agg", 2, 2, 0, 2)], 2, [("agg-0", (0,), ((0, 1),)), ("agg-1", (1,), ((0, 1),))]),
    (
        [Request("agg", 3, 2, 0, 1)],
        8,
        [("agg-0", (0,), ((0, 1),)), ("agg-1", (0,), ((2, 3),)), ("agg-2", (0,), ((4, 5),))],
    ),
    ([Request("agg", 2, 2, 0, 2, spread=True)], 8, [("agg-0", (0,), ((0, 1),)), ("agg-1", (1,), ((0, 1),))]),
    ([Request("agg", 1, 12, 0, 2)], 8, [("agg-0", (0, 1), (tuple(range(8)), (0, 1, 2, 3)))]),
    (
        [Request("agg", 2, 12, 0, 3)],
        8,
        [("agg-0", (0, 1), (tuple(range(8)), (0, 1, 2, 3))), ("agg-1", (1, 2), ((4, 5, 6, 7), tuple(range(8))))],
    ),
    (
        [Request("prefill", 1, 2, 0, 1), Request("decode", 1, 2, 1, 1)],
        2,
        [("prefill-0", (0,), ((0, 1),)), ("decode-0", (1,), ((0, 1),))],
    ),
    (  # colocated: decode takes what prefill left
        [Request("prefill", 1, 4, 0, 1), Request("decode", 1, 4, 0, 1)],
        8,
        [("prefill-0", (0,), ((0, 1, 2, 3),)), ("decode-0", (0,), ((4, 5, 6, 7),))],
    ),
    (  # two small workers leave a hole that a whole-node worker must not use
        [Request("agg", 1, 1, 0, 3), Request("decode", 1, 16, 0, 3)],
        8,
        [("agg-0", (0,), ((0,),)), ("decode-0", (1, 2), (tuple(range(8)), tuple(range(8))))],
    ),
]


@pytest.mark.parametrize(("requests", "gpus_per_node", "expected"), TABLE)
def test_layout(requests: list[Request], gpus_per_node: int, expected: list[tuple]) -> None:
    placed, problems = place(requests, gpus_per_node)
    assert problems == []
    assert [(p.name, p.nodes, p.gpus) for p in placed] == expected


TOO_SMALL = [
    (
        [Request("agg", 8, 4, 0, 1)],
        8,
        "8 agg workers of 4 GPUs do not fit on 1 node of 8 GPUs: only 2 can be placed",
        "to 4",
    ),
    ([Request("agg", 1, 16, 0, 1)], 8, "1 agg worker of 16 GPUs does not fit on 1 node", "to 2"),
    (
        [Request("prefill", 1, 2, 0, 1), Request("decode", 1, 8, 0, 1)],
        8,
        "1 decode worker of 8 GPUs",
        "prefill-0 holds 2 GPUs of",
    ),
    ([Request("agg", 3, 1, 0, 2, spread=True)], 8, "only 2 can be placed", "a node of its own"),
]


@pytest.mark.parametrize(("requests", "gpus_per_node", "message", "hint"), TOO_SMALL)
def test_oversubscription_is_a_finding(requests: list[Request], gpus_per_node: int, message: str, hint: str) -> None:
    _, problems = place(requests, gpus_per_node)
    assert [p.code for p in problems] == ["placement/oversubscribed"]
    assert message in problems[0].message
    assert hint in problems[0].hint
    assert problems[0].path == f"roles.{requests[-1].role}.workers"


@st.composite
def topologies(draw: st.DrawFn) -> tuple[list[Request], int]:
    gpus_per_node = draw(st.integers(1, 8))
    first = 0
    requests: list[Request] = []
    for role in ("prefill", "decode"):
        nodes = draw(st.integers(1, 6))
        colocate = role == "decode" and draw(st.booleans())
        where, count = (0, requests[0].nodes) if colocate else (first, nodes)
        requests.append(
            Request(role, draw(st.integers(1, 8)), draw(st.integers(1, 20)), where, count, draw(st.booleans()))
        )
        first += 0 if colocate else nodes
    return requests, gpus_per_node


@given(topologies())
def test_no_gpu_has_two_owners_and_everyone_gets_what_was_asked(case: tuple[list[Request], int]) -> None:
    requests, gpus_per_node = case
    placed, problems = place(requests, gpus_per_node)
    by_role = {r.role: r for r in requests}
    owners = [(node, gpu) for p in placed for node, gpus in zip(p.nodes, p.gpus, strict=True) for gpu in gpus]
    assert len(owners) == len(set(owners))
    assert all(0 <= gpu < gpus_per_node for _, gpu in owners)
    for p in placed:
        request = by_role[p.role]
        assert sum(map(len, p.gpus)) == request.gpus
        assert all(request.first_node <= n < request.first_node + request.nodes for n in p.nodes)
        assert list(p.nodes) == sorted(set(p.nodes))
    if not problems:
        assert len(placed) == sum(r.workers for r in requests)
