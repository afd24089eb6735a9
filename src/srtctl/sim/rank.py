"""One DP rank of a process, with its prefix cache and, if KV events are on, its publisher; and what a node does with it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

import zmq

from srtctl.sim.channel import Message
from srtctl.sim.faults import Faults
from srtctl.sim.kv_cache import PrefixCache
from srtctl.sim.publisher import KvPublisher


class Rank:
    """One DP rank: uses of its cache are serialised, and published in the order in which they happened."""

    def __init__(self, cache: PrefixCache, publisher: KvPublisher | None) -> None:
        self._cache = cache
        self._publisher = publisher
        self._lock = threading.Lock()

    @property
    def port(self) -> int | None:
        """The port that its publisher is bound to; None where it has none."""
        return self._publisher.port if self._publisher else None

    def prefill(self, tokens: Sequence[int]) -> int:
        """Run a prompt through the cache; returns how many of its tokens were cached."""
        with self._lock:
            used = self._cache.use(tokens)
            if self._publisher:
                self._publisher.publish(used.events)
            return used.cached_tokens

    def flush(self) -> None:
        """Empty the cache."""
        with self._lock:
            events = self._cache.clear()
            if self._publisher:
                self._publisher.publish(events)

    def close(self) -> None:
        """Close the publisher's socket."""
        with self._lock:
            if self._publisher:
                self._publisher.close()
                self._publisher = None


def open_each(dp_ranks: Iterable[int], make: Callable[[int], Rank]) -> dict[int, Rank]:
    """The ranks by global rank, each from `make`; what was opened is closed again where one cannot be."""
    ranks: dict[int, Rank] = {}
    try:
        for dp_rank in dp_ranks:
            ranks[dp_rank] = make(dp_rank)
    except BaseException:
        for rank in ranks.values():
            rank.close()
        raise
    return ranks


def open_publisher(endpoint: str, topic: str, dp_rank: int, faults: Faults) -> KvPublisher:
    """The publisher of a rank, with what `faults` ask of it. Raises OSError naming the rank and the address."""
    told = None if faults.no_rank else dp_rank + faults.bad_rank
    said = f"not-{topic}" if faults.wrong_topic else topic
    try:
        return KvPublisher(endpoint, said, told, muted=faults.silences(dp_rank))
    except zmq.ZMQError as error:
        raise OSError(error.errno, f"{error.strerror} (KV event publisher of DP rank {dp_rank}, {endpoint})") from None


def node_handler(ranks: Mapping[int, Rank], log: logging.Logger) -> Callable[[Message], Message]:
    """What a node does for the leader: a function from request to answer."""

    def handle(request: Message) -> Message:
        dp_rank = request["dp_rank"]
        if request["do"] == "forward":
            log.info("Forward: rid=%s dp_rank=%d", request["rid"], dp_rank)
            return {}
        if request["do"] == "flush":
            ranks[dp_rank].flush()
            return {}
        return {"cached_tokens": ranks[dp_rank].prefill(request["tokens"])}

    return handle
