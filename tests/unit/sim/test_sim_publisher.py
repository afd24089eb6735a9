"""The socket that publishes KV events."""

from __future__ import annotations

from collections.abc import Callable

import msgpack
import pytest
import zmq

from srtctl.sim.kv_cache import Cleared
from srtctl.sim.publisher import KvPublisher


def test_three_frames_numbered_from_zero(ports: Callable[[int], int]) -> None:
    port = ports(1)
    subscriber: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.SUB)
    subscriber.subscribe(b"kv")
    subscriber.bind(f"tcp://127.0.0.1:{port}")
    publisher = KvPublisher(f"tcp://127.0.0.1:{port}", "kv-events", 3)  # not a wildcard: connects
    try:
        sent = 0
        while not subscriber.poll(50):  # what precedes the subscription is dropped
            sent += 1
            publisher.publish([Cleared()])
            assert sent < 200
        topic, sequence, payload = subscriber.recv_multipart()
        assert (topic, len(sequence)) == (b"kv-events", 8)
        assert msgpack.unpackb(payload)[1:] == [[["AllBlocksCleared"]], 3]
        publisher.publish([])
        publisher.publish([Cleared()])
        following = int.from_bytes(sequence, "big")
        while following < sent:
            assert subscriber.poll(5000)
            following = int.from_bytes(subscriber.recv_multipart()[1], "big")
        assert following == sent  # the empty batch took no number
    finally:
        publisher.close()
        subscriber.close()


def test_a_wildcard_is_bound_once(ports: Callable[[int], int]) -> None:
    endpoint = f"tcp://*:{ports(1)}"
    first = KvPublisher(endpoint, "", 0)
    try:
        with pytest.raises(zmq.ZMQError, match="Address already in use"):
            KvPublisher(endpoint, "", 1)
    finally:
        first.close()
