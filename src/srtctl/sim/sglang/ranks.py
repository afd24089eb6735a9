"""The DP ranks of one process: each with its prefix cache and, if KV events are on, its publisher."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence

import zmq

from srtctl.sim.faults import WRONG_PORT_OFFSET, Faults
from srtctl.sim.kv_cache import PrefixCache
from srtctl.sim.publisher import KvPublisher
from srtctl.sim.sglang.config import Config, KvEvents


class Rank:
    """One DP rank: uses of its cache are serialised, and published in the order in which they happened."""

    def __init__(self, cache: PrefixCache, publisher: KvPublisher | None) -> None:
        self._cache = cache
        self._publisher = publisher
        self._lock = threading.Lock()

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


def open_ranks(config: Config, faults: Faults) -> dict[int, Rank]:
    """The ranks that live on `config`'s node, by global rank, publishers bound. Raises OSError naming the address."""
    # As in SGLang a decode engine shares no prefixes, unless somebody wants to hear of them
    shares = config.prefix_cache and (config.disaggregation_mode != "decode" or config.kv_events is not None)
    capacity = config.max_total_tokens if shares else 0
    block_size = faults.block_size or config.page_size
    ranks: dict[int, Rank] = {}
    try:
        for dp_rank in config.local_ranks:
            ranks[dp_rank] = Rank(PrefixCache(block_size, capacity), _publisher(config, faults, dp_rank))
    except BaseException:
        for rank in ranks.values():
            rank.close()
        raise
    return ranks


def _publisher(config: Config, faults: Faults, dp_rank: int) -> KvPublisher | None:
    if config.kv_events is None:
        return None
    events = _faulty(config.kv_events, faults)
    endpoint = events.endpoint(dp_rank)
    told = None if faults.no_rank else dp_rank + faults.bad_rank
    try:
        return KvPublisher(endpoint, events.topic, told, muted=faults.silences(dp_rank))
    except zmq.ZMQError as error:
        raise OSError(error.errno, f"{error.strerror} (KV event publisher of DP rank {dp_rank}, {endpoint})") from None


def _faulty(events: KvEvents, faults: Faults) -> KvEvents:
    """Where the events really go; server info always tells what was asked for."""
    if faults.wrong_topic:
        events = dataclasses.replace(events, topic=f"not-{events.topic}")
    return dataclasses.replace(events, port=events.port + WRONG_PORT_OFFSET) if faults.wrong_port else events
