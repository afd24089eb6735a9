"""Which engines the frontend is connected to: those of the workers that advertise their gRPC server.

The steps and their log lines are those of the public contract (ai-dynamo/dynamo, `direct_dispatch.rs` of its branch).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from srtctl.sim.direct.card import Member
from srtctl.sim.direct.engine import ConnectError, EngineClient

CONNECT_SECONDS = 5.0
log = logging.getLogger("reference.direct_dispatch")


def connect(address: str) -> EngineClient:
    """A client of an engine that serves. Raises ConnectError."""
    client = EngineClient(address)
    try:
        client.wait(CONNECT_SECONDS)
    except BaseException:
        client.drop()
        raise
    return client


class DirectRegistry:
    """Engines by worker id. `reconcile` is called by one thread, `get` by any."""

    def __init__(self, connect: Callable[[str], EngineClient] = connect) -> None:
        self._connect = connect
        self._engines: dict[int, EngineClient] = {}
        self._lock = threading.Lock()

    def get(self, worker_id: int) -> EngineClient | None:
        """The engine of a worker, if it can be called directly."""
        with self._lock:
            return self._engines.get(worker_id)

    def reconcile(self, members: Mapping[int, Member]) -> None:
        """After a change of membership: drop who left, moved or no longer advertises; connect to who does.

        A connection that fails is tried again by the next call, so on the next change.
        """
        wanted = {worker_id: member.direct for worker_id, member in members.items() if member.direct}
        with self._lock:
            stale = [who for who, engine in self._engines.items() if wanted.get(who) != engine.address]
            dropped = [(who, self._engines.pop(who)) for who in stale]
        for worker_id, engine in dropped:
            engine.drop()
            log.info("direct dispatch: dropped engine worker_id=%d", worker_id)
        for worker_id, address in wanted.items():
            if self.get(worker_id) is not None:
                continue
            try:
                engine = self._connect(address)
            except ConnectError as error:
                log.warning(
                    "direct dispatch: connect failed; requests use the request plane until the next membership change "
                    'worker_id=%d endpoint="%s" error="%s"',
                    *(worker_id, address, error),
                )
                continue
            log.info('direct dispatch: connected engine worker_id=%d endpoint="%s"', worker_id, address)
            with self._lock:
                self._engines[worker_id] = engine

    def close(self) -> None:
        """Drop all."""
        self.reconcile({})
