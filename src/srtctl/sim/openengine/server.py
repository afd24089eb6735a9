"""The listening OpenEngine server of an engine."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable

from srtctl.sim.faults import Faults
from srtctl.sim.grpc_listener import GrpcListener
from srtctl.sim.openengine.admission import Admission
from srtctl.sim.openengine.engine import Engine
from srtctl.sim.openengine.info import Discovery
from srtctl.sim.openengine.schema import CONTROL, INFERENCE, MESSAGES
from srtctl.sim.openengine.servicer import Servicer
from srtctl.sim.process import Stopped
from srtctl.sim.protobuf import service

log = logging.getLogger("openengine")

DRAIN_SECONDS = 15.0
"""How long a stopping engine lets its streams run: less than a job's grace (STOP_GRACE), after which it is killed."""
FLUSH_SECONDS = 1.0


class OpenEngineServer:
    """Serves both services on one plaintext port."""

    def __init__(
        self, host: str, port: int, engine: Engine, faults: Faults, ready: Callable[[], bool], *, served: bool = True
    ) -> None:
        """Bind and serve; not `served`: listen, and know none of the methods.

        Raises OSError naming the address when it is taken, ValueError for a fault nobody knows.
        """
        self._admission = Admission()
        self._engine = engine
        servicer = Servicer(engine, Discovery(engine.facts, uuid.uuid4().hex, faults), self._admission, ready)
        services = (
            service(INFERENCE, MESSAGES, servicer.inference(), frozenset({"Generate"})),
            service(CONTROL, MESSAGES, servicer.control(), frozenset({"Drain"})),
        )
        self._listener = GrpcListener(host, port, services if served else ())

    def __enter__(self) -> OpenEngineServer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Stop. Where a signal asked for it, what runs may end first, streams and sessions; what is new is refused."""
        if kind is not None and issubclass(kind, Stopped):
            log.info(
                "Draining: %d requests, %d KV sessions", len(self._admission.running()), self._engine.open_sessions()
            )
            self._admission.start_drain()
            self._admission.wait_empty(DRAIN_SECONDS, lambda: not self._engine.open_sessions())
        self._listener.close(FLUSH_SECONDS if self._admission.draining else None)
