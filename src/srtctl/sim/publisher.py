"""The ZMQ socket on which one DP rank publishes its KV-cache events."""

from __future__ import annotations

import time
from collections.abc import Sequence

import zmq

from srtctl.sim.kv_cache import Event, encode_batch


class KvPublisher:
    """A PUB socket that sends `topic | 8-byte big-endian sequence | payload`, numbered from 0.

    Not thread-safe: the owner of a rank's cache serialises its use.
    """

    def __init__(self, endpoint: str, topic: str, dp_rank: int | None, *, muted: bool = False) -> None:
        """Bind `endpoint` if it is a wildcard, else connect to it, as SGLang does; `dp_rank` is sent in each batch.

        `muted`: the socket is there, and nothing is ever sent.

        Raises zmq.ZMQError when the address cannot be bound.
        """
        self._topic = topic.encode()
        self._dp_rank = dp_rank
        self._muted = muted
        self._sequence = 0
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.PUB)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.SNDHWM, 100_000)
        try:
            if "*" in endpoint:
                self._socket.bind(endpoint)
            else:
                self._socket.connect(endpoint)
        except zmq.ZMQError:
            self._socket.close()
            raise

    @property
    def port(self) -> int:
        """The port that the socket is bound or connected to; known also where port 0 was asked for."""
        return int(self._socket.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0").rpartition(":")[2])

    def publish(self, events: Sequence[Event]) -> None:
        """Send one batch; nothing is sent for no events. Subscribers that have not joined yet never see it."""
        if not events or self._muted:
            return
        payload = encode_batch(events, self._dp_rank, time.time())
        self._socket.send_multipart([self._topic, self._sequence.to_bytes(8, "big"), payload])
        self._sequence += 1

    def close(self) -> None:
        """Close the socket; what was not sent yet is dropped."""
        self._socket.close()
