"""A prefix cache of one DP rank, and the KV-cache events that follow from using it. Pure: no clock, no socket."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgpack

MEDIUM = "GPU"


@dataclass(frozen=True)
class Stored:
    """Blocks that entered the cache: a chain, the first one's parent is `parent` (None: start of a prompt)."""

    hashes: tuple[int, ...]
    parent: int | None
    tokens: tuple[int, ...]
    block_size: int

    def wire(self) -> list[Any]:
        """SGLang's positional layout: tag, hashes, parent, token ids, block size, LoRA id, medium."""
        return ["BlockStored", list(self.hashes), self.parent, list(self.tokens), self.block_size, None, MEDIUM]


@dataclass(frozen=True)
class Removed:
    """Blocks that left the cache to make room."""

    hashes: tuple[int, ...]

    def wire(self) -> list[Any]:
        """SGLang's positional layout: tag, hashes, medium."""
        return ["BlockRemoved", list(self.hashes), MEDIUM]


@dataclass(frozen=True)
class Cleared:
    """The whole cache was emptied."""

    def wire(self) -> list[Any]:
        """SGLang's positional layout: the tag alone."""
        return ["AllBlocksCleared"]


Event = Stored | Removed | Cleared


@dataclass(frozen=True)
class Used:
    """What one prompt did to the cache."""

    cached_tokens: int
    events: tuple[Event, ...]


class PrefixCache:
    """Full blocks of `block_size` tokens, known by a hash of all tokens up to their end; least recently used go first.

    Recency is ordered so that a block is always older than its parent: what is evicted is the end of some chain, so
    that every cached block stays reachable from the start of its prompt.
    """

    def __init__(self, block_size: int, capacity_tokens: int) -> None:
        self.block_size = block_size
        self.capacity = capacity_tokens // block_size
        self._blocks: OrderedDict[int, None] = OrderedDict()  # oldest first

    def __len__(self) -> int:
        return len(self._blocks)

    def use(self, tokens: Sequence[int]) -> Used:
        """Match the longest cached prefix of `tokens`, store the rest; returns the matched token count and the events.

        Of a prompt that is larger than the cache only the beginning is kept.
        """
        chain = block_hashes(tokens, self.block_size)[: self.capacity]
        hit = next((i for i, block in enumerate(chain) if block not in self._blocks), len(chain))
        for block in reversed(chain):
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        removed = []
        while len(self._blocks) > self.capacity:
            removed.append(self._blocks.popitem(last=False)[0])
        events: list[Event] = [Removed(tuple(removed))] if removed else []
        if new := chain[hit:]:
            kept = tokens[hit * self.block_size : len(chain) * self.block_size]
            events.append(Stored(tuple(new), chain[hit - 1] if hit else None, tuple(kept), self.block_size))
        return Used(hit * self.block_size, tuple(events))

    def clear(self) -> tuple[Event, ...]:
        """Empty the cache; returns the event to publish."""
        self._blocks.clear()
        return (Cleared(),)


def block_hashes(tokens: Sequence[int], block_size: int) -> list[int]:
    """Signed 64-bit hashes of the full blocks of `tokens`, each over its own tokens and the hash before it."""
    hashes: list[int] = []
    previous = b""
    for start in range(0, len(tokens) - block_size + 1, block_size):
        block = ",".join(map(str, tokens[start : start + block_size]))
        previous = hashlib.sha256(previous + block.encode()).digest()[:8]
        hashes.append(int.from_bytes(previous, "big", signed=True))
    return hashes


def encode_batch(events: Iterable[Event], dp_rank: int | None, timestamp: float) -> bytes:
    """The msgpack payload of one batch: an array `[timestamp, events, dp_rank]` (Dynamo 1.6.1 refuses maps)."""
    encoded: bytes = msgpack.packb([timestamp, [event.wire() for event in events], dp_rank])
    return encoded
