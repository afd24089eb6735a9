"""The DP ranks of one process: each with its prefix cache and, if KV events are on, its publisher."""

from __future__ import annotations

import dataclasses

from srtctl.sim.faults import WRONG_PORT_OFFSET, Faults
from srtctl.sim.kv_cache import PrefixCache
from srtctl.sim.publisher import KvPublisher
from srtctl.sim.rank import Rank, open_each, open_publisher
from srtctl.sim.sglang.config import Config


def open_ranks(config: Config, faults: Faults) -> dict[int, Rank]:
    """The ranks that live on `config`'s node, by global rank, publishers bound. Raises OSError naming the address."""
    # As in SGLang a decode engine shares no prefixes, unless somebody wants to hear of them
    shares = config.prefix_cache and (config.disaggregation_mode != "decode" or config.kv_events is not None)
    capacity = config.max_total_tokens if shares else 0
    block_size = faults.block_size or config.page_size
    return open_each(
        config.local_ranks, lambda rank: Rank(PrefixCache(block_size, capacity), _publisher(config, faults, rank))
    )


def _publisher(config: Config, faults: Faults, dp_rank: int) -> KvPublisher | None:
    events = config.kv_events
    if events is None:
        return None
    if faults.wrong_port:  # server info always tells what was asked for
        events = dataclasses.replace(events, port=events.port + WRONG_PORT_OFFSET)
    return open_publisher(events.endpoint(dp_rank), events.topic, dp_rank, faults)
