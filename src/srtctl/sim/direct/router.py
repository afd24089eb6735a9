"""Who answers a request: the pinned rank, or the one with the fewest requests; each booked for as long as it runs."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from srtctl.sim.direct.card import Member
from srtctl.sim.direct.engine import EngineClient
from srtctl.sim.direct.registry import DirectRegistry

Rank = tuple[int, int]  # worker id, DP rank
DIRECT, REQUEST_PLANE = "direct", "request_plane"


class PinError(Exception):
    """The pinned worker or rank does not exist; `status` is the HTTP status that Dynamo answers."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Booking:
    """A request's place on a rank, and the client that carries it there by `path`."""

    rank: Rank
    client: EngineClient
    path: str


class Router:
    """Thread-safe. `registry` None: everything goes by the request plane."""

    def __init__(self, registry: DirectRegistry | None) -> None:
        self._registry = registry
        self._lock = threading.Lock()
        self._members: dict[int, Member] = {}
        self._planes: dict[int, EngineClient] = {}
        self._running: Counter[Rank] = Counter()
        self._sent: Counter[tuple[int, str]] = Counter()

    def update(self, members: Mapping[int, Member]) -> None:
        """From now on these are the workers."""
        with self._lock:
            gone = [self._planes.pop(who) for who in list(self._planes) if self._members[who] != members.get(who)]
            self._members = dict(members)
            for worker_id, member in members.items():
                if worker_id not in self._planes:
                    self._planes[worker_id] = EngineClient(member.plane)
        for plane in gone:
            plane.drop()

    def members(self) -> tuple[Member, ...]:
        """The workers now."""
        with self._lock:
            return tuple(self._members.values())

    def book(self, model: str, worker_id: int | None, dp_rank: int | None) -> Booking:
        """A place for one request; `release` gives it back. Raises PinError, also where nobody serves the model."""
        with self._lock:
            rank = self._choose(model, worker_id, dp_rank)
            engine = self._registry.get(rank[0]) if self._registry else None
            path = DIRECT if engine else REQUEST_PLANE
            self._running[rank] += 1
            self._sent[rank[0], path] += 1
            return Booking(rank, engine or self._planes[rank[0]], path)

    def release(self, booking: Booking) -> None:
        """The request has ended, however it did."""
        with self._lock:
            self._running[booking.rank] -= 1

    def running(self) -> dict[Rank, int]:
        """Requests that hold a place now, by rank; ranks without any are left out."""
        with self._lock:
            return {rank: count for rank, count in self._running.items() if count}

    def sent(self) -> dict[tuple[int, str], int]:
        """Requests so far by worker id and path."""
        with self._lock:
            return dict(self._sent)

    def _choose(self, model: str, worker_id: int | None, dp_rank: int | None) -> Rank:
        serving = {who: member for who, member in self._members.items() if member.model == model}
        if not serving:
            raise PinError(404, f"Model not found: {model}")
        if worker_id is None:
            ranks = [(who, rank) for who, member in serving.items() for rank in member.ranks]
            return min(ranks, key=lambda rank: (self._running[rank], rank))
        if worker_id not in serving:
            raise PinError(400, f"worker {worker_id} is not registered")
        ranks = [(worker_id, rank) for rank in serving[worker_id].ranks]
        if dp_rank is None:
            return min(ranks, key=lambda rank: (self._running[rank], rank))
        if (worker_id, dp_rank) not in ranks:
            raise PinError(500, f"Pinned worker {worker_id} dp_rank {dp_rank} is not eligible")
        return worker_id, dp_rank
