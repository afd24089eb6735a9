"""Rooms: what waits for whom, and for how long."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from srtctl.sim.errors import AbortedError, TransferError
from srtctl.sim.sglang.rooms import Offer, Refusal, Rooms

LONG = 30.0


def reason(found: object) -> str:
    assert isinstance(found, Refusal)
    return found.reason


def test_an_offer_is_taken_once_whoever_comes_first() -> None:
    rooms = Rooms(LONG)
    with ThreadPoolExecutor() as threads:
        for taken_first in (True, False):
            if taken_first:
                taken = threads.submit(rooms.take, 7, LONG)
                given = threads.submit(rooms.hand_over, 7, 1, threading.Event())
            else:
                given = threads.submit(rooms.hand_over, 7, 1, threading.Event())
                taken = threads.submit(rooms.take, 7, LONG)
            found = taken.result()
            assert isinstance(found, Offer)
            assert found.dp_rank == 1
            given.result()
            assert rooms.take(7, 0) is None


def test_rooms_do_not_mix() -> None:
    rooms = Rooms(LONG)
    with ThreadPoolExecutor() as threads:
        given = [threads.submit(rooms.hand_over, room, room % 2, threading.Event()) for room in (4, 7)]
        found = [rooms.take(room, LONG) for room in (7, 4)]
        assert [offer.dp_rank for offer in found if isinstance(offer, Offer)] == [1, 0]
        for each in given:
            each.result()


def test_nobody_comes() -> None:
    rooms = Rooms(0.01)
    assert rooms.take(7, 0.01) is None
    with pytest.raises(TransferError, match=r"no decode engine came for it within 0\.01s"):
        rooms.hand_over(7, 0, threading.Event())
    assert rooms.take(7, 0) is None


def test_an_aborted_prefill_leg_lets_the_decode_leg_know() -> None:
    rooms = Rooms(LONG)
    stop = threading.Event()
    stop.set()
    with pytest.raises(AbortedError):
        rooms.hand_over(7, 0, stop)
    assert reason(rooms.take(7, 0)) == "the prefill leg was aborted"


def test_refusals_are_forgotten_when_nobody_asks() -> None:
    rooms = Rooms(LONG)
    rooms.refuse(1, "first")
    rooms.refuse(2, "second")
    assert [reason(rooms.take(room, 0)) for room in (1, 2)] == ["first", "second"]
    forgetful = Rooms(0.0)
    forgetful.refuse(1, "first")
    forgetful.refuse(2, "second")
    assert forgetful.take(1, 0) is None
    assert reason(forgetful.take(2, 0)) == "second"
