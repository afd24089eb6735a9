"""Which registration belongs to which planned worker.

A sidecar with a status server advertises its model's files at `http://DYN_SYSTEM_HOST:DYN_SYSTEM_PORT/v1/metadata/...`
in its model card. The plan claims that port on that node for this sidecar alone, so `host:port` names the process,
with several workers on a node and with workers of one node alike. (`runtime_data.sglang_worker_group_id` exists only
for workers of several nodes, and the request endpoint is on a random port.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from srtctl.checks.deployment import Worker
from srtctl.checks.discovery import Card
from srtctl.checks.model import Target


@dataclass(frozen=True)
class Assignment:
    """`cards` and `problems` by worker name: its registrations, and what is missing or ambiguous about them.

    `extra` are the registrations of no planned worker.
    """

    cards: Mapping[str, tuple[Card, ...]]
    problems: Mapping[str, str]
    extra: tuple[Card, ...]

    def instances(self) -> dict[Target, Card]:
        """The card that serves each (worker, rank) which is registered; none of a worker with a problem."""
        return {
            Target(name, rank): card
            for name, cards in self.cards.items()
            if name not in self.problems
            for card in cards
            for rank in card.dp_ranks()
        }


def assign(workers: tuple[Worker, ...], cards: tuple[Card, ...]) -> Assignment:
    """Each planned worker's registrations: exactly one for each of its serving sidecars, or a problem."""
    planned = {address for worker in workers for address in worker.serving}
    extra = tuple(card for card in cards if not planned & card.status_servers)
    owned = {
        worker.name: tuple(card for card in cards if card.status_servers & set(worker.serving)) for worker in workers
    }
    problems = {worker.name: _problem(worker, owned[worker.name], extra) for worker in workers}
    return Assignment(owned, {name: problem for name, problem in problems.items() if problem}, extra)


def describe(card: Card) -> str:
    """A registration in a phrase: model, kind, where its sidecar is, worker id."""
    where = " and ".join(sorted(card.status_servers)) or "no status server"
    return f"{card.model} ({card.worker_type}) of {where}, worker id {card.worker_id}"


def _problem(worker: Worker, owned: tuple[Card, ...], extra: tuple[Card, ...]) -> str:
    for address in worker.serving:
        matches = [card for card in owned if address in card.status_servers]
        if len(matches) > 1:
            ids = " and ".join(str(card.worker_id) for card in matches)
            return f"{len(matches)} registrations of its sidecar at {address} (worker ids {ids}), so one is stale"
        if not matches:
            found = "; ".join(map(describe, extra)) or "nothing that the plan does not have elsewhere"
            return f"no registration of its sidecar at {address}; found instead: {found}"
    return ""
