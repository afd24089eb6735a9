"""The rooms of a prefill engine: each holds the KV cache of one request until its decode engine takes it."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from srtctl.sim.errors import AbortedError, TransferError

ABORT_POLL_SECONDS = 0.05


@dataclass(frozen=True, eq=False)
class Offer:
    """KV cache that lies ready on a DP rank. Two offers are never equal: a room may be used again."""

    dp_rank: int


@dataclass(frozen=True)
class Refusal:
    """The prefill leg failed, so the decode leg need not wait for it. `since` is a monotonic time in seconds."""

    reason: str
    since: float = field(default_factory=time.monotonic)


class Rooms:
    """Thread-safe. `seconds` bounds how long an offer, or the news of a failure, waits to be taken."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._rooms: dict[int, Offer | Refusal] = {}
        self._changed = threading.Condition()

    def hand_over(self, room: int, dp_rank: int, stop: threading.Event) -> None:
        """Offer the KV cache on `dp_rank` and wait until it was taken.

        Raises TransferError when nobody took it in time, AbortedError when `stop` is set.
        """
        deadline = time.monotonic() + self._seconds
        offer = Offer(dp_rank)
        with self._changed:
            self._rooms[room] = offer
            self._changed.notify_all()
            while self._rooms.get(room) is offer:
                left = deadline - time.monotonic()
                if stop.is_set():
                    self._refuse(room, "the prefill leg was aborted")
                    raise AbortedError
                if left <= 0:
                    del self._rooms[room]
                    raise TransferError(f"no decode engine came for it within {self._seconds:g}s")
                self._changed.wait(min(left, ABORT_POLL_SECONDS))

    def settled(self, room: int) -> bool:
        """Whether something is in the room: the KV cache, or the news that it will not come."""
        with self._changed:
            return room in self._rooms

    def waiting(self) -> int:
        """How many KV caches wait to be taken."""
        with self._changed:
            return sum(isinstance(content, Offer) for content in self._rooms.values())

    def refuse(self, room: int, reason: str) -> None:
        """Let the decode leg know that nothing will come."""
        with self._changed:
            self._refuse(room, reason)

    def take(self, room: int, seconds: float) -> Offer | Refusal | None:
        """What is in the room, at most once; waits up to `seconds` for it. None: nothing yet."""
        with self._changed:
            self._changed.wait_for(lambda: room in self._rooms, seconds)
            found = self._rooms.pop(room, None)
            self._changed.notify_all()
            return found

    def _refuse(self, room: int, reason: str) -> None:
        now = time.monotonic()
        for other, content in list(self._rooms.items()):
            if isinstance(content, Refusal) and now - content.since > self._seconds:
                del self._rooms[other]
        self._rooms[room] = Refusal(reason, now)
        self._changed.notify_all()
