"""The port ledger: what it refuses, and that claims never overlap on a host."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtctl.plan.ports import FAMILIES, Ledger


def test_the_next_claim_of_a_purpose_follows_the_last() -> None:
    ledger = Ledger(32768)
    assert ledger.claim((0,), "kv_events", "agg-0.0", 2) == (5200, [])
    assert ledger.claim((0,), "kv_events", "agg-1.0", 2) == (5202, [])
    assert ledger.claim((1,), "kv_events", "agg-2.0", 2) == (5200, [])


def test_a_common_claim_is_free_on_every_node() -> None:
    ledger = Ledger(32768)
    ledger.claim((1,), "bootstrap", "prefill-0.0")
    assert ledger.claim((0, 1), "bootstrap", "prefill-1") == (8999, [])


def test_nodes_that_share_a_host_share_its_ports() -> None:
    ledger = Ledger(32768, nodes_share_host=True)
    assert [ledger.claim((node,), "grpc", f"agg-0.{node}")[0] for node in range(3)] == [9100, 9101, 9102]


def test_a_chosen_port_steps_around_what_the_user_wrote() -> None:
    ledger = Ledger(32768)
    assert ledger.reserve((0,), "kv_events", "agg-0.0", 5201, 2) == []
    assert ledger.claim((0,), "kv_events", "agg-1.0", 2) == (5203, [])


def test_a_family_above_the_floor_moves_below_it() -> None:
    ledger = Ledger(9000)
    assert [ledger.claim((0,), "grpc", f"agg-{n}.0") for n in range(2)] == [(3000, []), (3001, [])]
    assert ledger.claim((0,), "nccl", "agg-0.0") == (3002, [])
    assert ledger.claim((0,), "http", "agg-0.0") == (6100, [])


REFUSED = [
    # first, count, floor, purpose, code, words
    (40000, 1, 32768, "http", "ports/ephemeral", "from 32768 up"),
    (9100, 1, 9000, "grpc", "ports/ephemeral", "from 9000 up"),
    (32767, 2, 32768, "kv_events", "ports/ephemeral", "32767-32768"),
    (33000, 1, 60000, "system", "ports/limit", "32767"),
    (5201, 1, 32768, "http", "ports/conflict", "kv_events of other"),
]


@pytest.mark.parametrize(("first", "count", "floor", "purpose", "code", "words"), REFUSED)
def test_refused(first: int, count: int, floor: int, purpose: str, code: str, words: str) -> None:
    ledger = Ledger(floor)
    ledger.reserve((0,), "kv_events", "other", 5200, 2)
    problems = ledger.reserve((0,), purpose, "mine", first, count)
    assert [p.code for p in problems] == [code]
    assert words in problems[0].message
    assert problems[0].hint


def test_running_out_is_a_finding() -> None:
    ledger = Ledger(5210)
    problems = [p for n in range(6) for p in ledger.claim((0,), "kv_events", f"agg-{n}.0", 2)[1]]
    assert [p.code for p in problems] == ["ports/exhausted"]
    assert "agg-5.0" in problems[0].message


purposes = st.sampled_from(sorted(FAMILIES))
asks = st.lists(
    st.tuples(st.integers(0, 3), purposes, st.integers(1, 64), st.one_of(st.none(), st.integers(1, 65535))), max_size=60
)


@given(asks, st.booleans())
def test_claims_never_overlap_on_a_host(wanted: list[tuple[int, str, int, int | None]], share: bool) -> None:
    ledger = Ledger(32768, share)
    for i, (node, purpose, count, fixed) in enumerate(wanted):
        if fixed is None:
            ledger.claim((node,), purpose, f"o{i}", count)
        else:
            ledger.reserve((node,), purpose, f"o{i}", fixed, count)
    taken = [(0 if share else c.node, port) for c in ledger.claims for port in range(c.first, c.first + c.count)]
    assert len(taken) == len(set(taken))
    assert all(port < 32768 for _, port in taken)
