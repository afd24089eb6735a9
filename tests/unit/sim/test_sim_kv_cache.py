"""The prefix cache and its events."""

from __future__ import annotations

import msgpack
from hypothesis import given
from hypothesis import strategies as st

from srtctl.sim.kv_cache import Cleared, PrefixCache, Removed, Stored, block_hashes, encode_batch

A, B, C, D = [1] * 4, [2] * 4, [3] * 4, [4] * 4


def test_a_repeat_is_cached_and_tells_nothing_new() -> None:
    cache = PrefixCache(4, 64)
    first, second = block_hashes(A + B, 4)
    assert cache.use(A + B).events == (Stored((first, second), None, (*A, *B), 4),)
    assert cache.use(A + B + [9, 9]).cached_tokens == 8
    assert cache.use(A + B).events == ()


def test_an_extension_names_its_parent() -> None:
    cache = PrefixCache(4, 64)
    cache.use(A)
    used = cache.use(A + B)
    first, second = block_hashes(A + B, 4)
    assert used.cached_tokens == 4
    assert used.events == (Stored((second,), first, tuple(B), 4),)


def test_the_same_tokens_after_another_prefix_are_another_block() -> None:
    assert block_hashes(A + B, 4)[1] != block_hashes(C + B, 4)[1]
    assert block_hashes(A[:3], 4) == []


def test_the_least_recently_used_end_of_a_prompt_goes_first() -> None:
    cache = PrefixCache(4, 16)
    cache.use(A + B)
    cache.use(C)
    cache.use(A)  # A is fresh again, B is the oldest
    used = cache.use(D + C)
    assert used.events[0] == Removed((block_hashes(A + B, 4)[1],))
    assert cache.use(A).cached_tokens == 4
    assert cache.use(C).cached_tokens == 4


def test_a_prompt_larger_than_the_cache_keeps_its_beginning() -> None:
    cache = PrefixCache(4, 8)
    used = cache.use(A + B + C)
    assert used.events == (Stored(tuple(block_hashes(A + B, 4)), None, (*A, *B), 4),)
    assert cache.use(A + B + C).cached_tokens == 8


def test_no_capacity_stores_nothing() -> None:
    cache = PrefixCache(4, 0)
    assert cache.use(A + B).events == ()
    assert cache.use(A + B).cached_tokens == 0


def test_clear() -> None:
    cache = PrefixCache(4, 64)
    cache.use(A)
    assert cache.clear() == (Cleared(),)
    assert len(cache) == 0
    assert cache.use(A).cached_tokens == 0


@given(st.lists(st.lists(st.integers(0, 2), max_size=12), max_size=30), st.integers(1, 3), st.integers(0, 12))
def test_whoever_follows_the_events_knows_what_is_cached(
    prompts: list[list[int]], block_size: int, capacity: int
) -> None:
    cache = PrefixCache(block_size, capacity)
    known: dict[int, int | None] = {}  # block -> parent, as a router would keep it
    for prompt in prompts:
        expected = 0
        for block in block_hashes(prompt, block_size):
            if block not in known:
                break
            expected += block_size
        used = cache.use(prompt)
        assert used.cached_tokens == expected
        for event in used.events:
            if isinstance(event, Removed):
                for block in event.hashes:
                    del known[block]
            elif isinstance(event, Stored):
                assert len(event.tokens) == len(event.hashes) * block_size
                parent = event.parent
                for block in event.hashes:
                    assert parent is None or parent in known
                    known[block], parent = parent, block
        assert len(known) == len(cache) <= capacity // block_size
        assert all(parent is None or parent in known for parent in known.values())


def test_the_payload_is_an_array_with_positional_events() -> None:
    events = [Stored((-5, 7), 3, (1, 2, 3, 4), 2), Removed((7,)), Cleared()]
    assert msgpack.unpackb(encode_batch(events, 1, 12.5)) == [
        12.5,
        [["BlockStored", [-5, 7], 3, [1, 2, 3, 4], 2, None, "GPU"], ["BlockRemoved", [7], "GPU"], ["AllBlocksCleared"]],
        1,
    ]
