"""Planned worker -> registration, on recorded cards: two nodes, one node, and several workers on a node."""

from __future__ import annotations

from dataclasses import replace

import pytest

from srtctl.checks.deployment import Worker
from srtctl.checks.discovery import Card, parse
from srtctl.checks.identity import assign, describe
from srtctl.checks.model import Target

from .scenario import AGG0, AGG1, AGG2, DECODE0, PREFILL0, as_text, recorded

AGG = parse(as_text(recorded("agg-etcd.json"))).cards
PD = parse(as_text(recorded("pd-etcd.json"))).cards


def worker(name: str, *serving: str) -> Worker:
    return Worker(name, "agg", 2, serving, {}, ())


TWO_NODES, FIRST, SECOND = "10.88.0.1:21149", "10.88.0.2:21156", "10.88.0.2:21162"


@pytest.mark.parametrize(
    ("cards", "workers", "expected"),
    [
        (AGG, {"a": TWO_NODES, "b": FIRST, "c": SECOND}, {"a": AGG0, "b": AGG1, "c": AGG2}),
        (AGG, {"a": SECOND, "b": TWO_NODES, "c": FIRST}, {"a": AGG2, "b": AGG0, "c": AGG1}),
        (PD, {"p": "10.88.0.1:21193", "d": "10.88.0.2:21195"}, {"p": PREFILL0, "d": DECODE0}),
    ],
)
def test_each_worker_finds_its_own(cards: tuple[Card, ...], workers: dict[str, str], expected: dict[str, int]) -> None:
    assignment = assign(tuple(worker(name, address) for name, address in workers.items()), cards)
    assert {name: [card.worker_id for card in found] for name, found in assignment.cards.items()} == {
        name: [worker_id] for name, worker_id in expected.items()
    }
    assert assignment.problems == {}
    assert assignment.extra == ()
    assert {target: card.worker_id for target, card in assignment.instances().items()} == {
        Target(name, rank): worker_id for name, worker_id in expected.items() for rank in (0, 1)
    }


def test_a_worker_with_a_sidecar_on_every_node_has_a_registration_on_each() -> None:
    halves = (replace(AGG[0], ranks=1), replace(AGG[1], first_rank=1, ranks=1))
    assignment = assign((worker("a", TWO_NODES, FIRST),), halves)
    assert {target.dp_rank: card.worker_id for target, card in assignment.instances().items()} == {0: AGG0, 1: AGG1}


@pytest.mark.parametrize(
    ("serving", "cards", "problem"),
    [
        (TWO_NODES, AGG[1:2], f"no registration of its sidecar at {TWO_NODES}; found instead: tiny (aggregated) of"),
        (TWO_NODES, (), "found instead: nothing that the plan does not have elsewhere"),
        ("10.88.0.2:21149", AGG[:1], "no registration of its sidecar at 10.88.0.2:21149"),  # the port alone is not it
        (TWO_NODES, (AGG[0], replace(AGG[0], key="k", worker_id=9)), f"(worker ids {AGG0} and 9), so one is stale"),
        (TWO_NODES, (replace(AGG[0], status_servers=frozenset()),), "tiny (aggregated) of no status server"),
    ],
)
def test_missing_or_ambiguous(serving: str, cards: tuple[Card, ...], problem: str) -> None:
    assignment = assign((worker("a", serving),), cards)
    assert problem in assignment.problems["a"]
    assert assignment.instances() == {}


def test_a_registration_of_no_worker_is_extra() -> None:
    assignment = assign((worker("a", TWO_NODES),), AGG[:2])
    assert [describe(card) for card in assignment.extra] == [f"tiny (aggregated) of 10.88.0.2:21156, worker id {AGG1}"]
