"""Which requests are in the engine: admits them, or refuses them while it drains, and knows which have ended."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator

from srtctl.sim.openengine.engine import RejectedError

REMEMBERED = 4096
"""Ended requests that an Abort still knows."""
POLL_SECONDS = 0.02


class Admission:
    """Thread-safe."""

    def __init__(self) -> None:
        self._running: set[str] = set()
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._draining = False
        self._lock = threading.Lock()

    @property
    def draining(self) -> bool:
        """Whether new requests are refused."""
        return self._draining

    @contextlib.contextmanager
    def admit(self, request_id: str) -> Iterator[None]:
        """Hold a place for the request. Raises RejectedError while draining, or where that id is running already."""
        with self._lock:
            if self._draining:
                raise RejectedError("the engine is draining: new requests are refused", "UNAVAILABLE")
            if request_id in self._running:
                raise RejectedError(f"request {request_id!r} is running already", "ALREADY_EXISTS")
            self._running.add(request_id)
        try:
            yield
        finally:
            with self._lock:
                self._running.discard(request_id)
                self._ended[request_id] = None
                while len(self._ended) > REMEMBERED:
                    self._ended.popitem(last=False)

    def state(self, request_id: str) -> str:
        """`running`, `ended`, or empty for a request that was never here."""
        with self._lock:
            if request_id in self._running:
                return "running"
            return "ended" if request_id in self._ended else ""

    def running(self) -> list[str]:
        """The requests that have not ended."""
        with self._lock:
            return sorted(self._running)

    def start_drain(self) -> None:
        """From now on new requests are refused; those inside run on."""
        with self._lock:
            self._draining = True

    def wait_empty(self, seconds: float | None, also: Callable[[], bool] = lambda: True) -> bool:
        """Wait until nothing runs and `also` holds; whether that was so within `seconds` (None: waits for ever)."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while self.running() or not also():
            if deadline is not None and time.monotonic() >= deadline:
                return False
            time.sleep(POLL_SECONDS)
        return True
