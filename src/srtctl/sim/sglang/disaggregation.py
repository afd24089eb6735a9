"""What the role of an engine adds to a request: where a prefill engine's KV cache goes, and a decode engine's is from.

Both legs of a request start at once, with the same room. SGLang's rules: the prefill DP rank is `room % dp_size`, unless
`--load-balance-method` says otherwise; a leg that fails ends its stream with an abort of status 500.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass

from srtctl.sim.errors import RequestError, TransferError
from srtctl.sim.faults import Faults
from srtctl.sim.sglang.bootstrap import BootstrapServer, take
from srtctl.sim.sglang.config import Config
from srtctl.sim.sglang.request import Bootstrap, Request
from srtctl.sim.sglang.rooms import Rooms

log = logging.getLogger("sglang")

# SGLang's own names. Its default is 300 s; a test of a broken launch should not wait that long.
PREFILL_TIMEOUT_VARIABLE = "SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT"
DECODE_TIMEOUT_VARIABLE = "SGLANG_DISAGGREGATION_WAITING_TIMEOUT"
DEFAULT_TIMEOUT = 30.0


@dataclass(frozen=True)
class Leg:
    """One request on the DP rank that runs it. `stop` is set when the client gives it up."""

    request: Request
    dp_rank: int
    stop: threading.Event


class Role:
    """An aggregated engine's: nothing is handed over. `leg` is the first word of a request's line in the log."""

    leg = "Prefill"

    def dp_rank(self, request: Request) -> int | None:
        """The DP rank that the request implies; None: any. Raises RequestError for a request of another role."""
        return request.dp_rank

    def before(self, _: Leg) -> dict[str, object]:
        """What precedes the prompt's run; returns what the log should tell about it.

        Raises TransferError, or AbortedError when the request is given up meanwhile.
        """
        return {}

    def after(self, leg: Leg) -> None:
        """What follows the prompt's run. Raises as `before`."""

    def failed(self, request: Request, reason: str) -> None:
        """The leg ended with an error, here or elsewhere in the engine."""

    def offered(self, room: int) -> bool:  # noqa: ARG002
        """Whether the leg of that room has come to its handover, or to its end."""
        return True

    def waiting(self) -> int:
        """How many KV caches wait to be taken."""
        return 0

    def close(self) -> None:
        """Stop listening."""


class Prefill(Role):
    """The KV cache is handed over in the request's room, at this engine's own bootstrap server."""

    leg = "Prefill"

    def __init__(self, config: Config, faults: Faults, registered: Callable[[], bool]) -> None:
        """Listen; raises OSError when the bootstrap port is taken."""
        self._port = config.bootstrap_port
        self._dp = config.topology.dp
        self._follow = config.follow_bootstrap_room and self._dp > 1
        self._attention_rank_only = faults.ordinary_dp_bootstrap and not config.topology.dp_attention
        self._rooms = Rooms(_seconds(PREFILL_TIMEOUT_VARIABLE))
        self._server = BootstrapServer(config, self._rooms, registered)
        log.info("Bootstrap server listens on %s:%d", config.host, config.bootstrap_port)

    def dp_rank(self, request: Request) -> int | None:
        room = _bootstrap(request).room
        return room % self._dp if request.dp_rank is None and self._follow else request.dp_rank

    def before(self, leg: Leg) -> dict[str, object]:
        address, room = _bootstrap(leg.request).address, _bootstrap(leg.request).room
        if address.port != self._port or not is_local(address.host):
            raise _error(self, leg, f"that is not this engine's bootstrap server, which has port {self._port} here")
        seen, implied = 0 if self._attention_rank_only else leg.dp_rank, room % self._dp
        if self._follow and seen != implied:
            reason = f"dispatched to dp_rank {seen} but bootstrap_room {room} implies dp_rank {implied}"
            raise _error(self, leg, f"follow_bootstrap_room conflict: {reason}")
        return {"room": room, "bootstrap": address}

    def after(self, leg: Leg) -> None:
        try:
            self._rooms.hand_over(_bootstrap(leg.request).room, leg.dp_rank, leg.stop)
        except TransferError as error:
            raise _error(self, leg, str(error)) from None

    def failed(self, request: Request, reason: str) -> None:
        if request.bootstrap:
            self._rooms.refuse(request.bootstrap.room, reason)

    def offered(self, room: int) -> bool:
        return self._rooms.settled(room)

    def waiting(self) -> int:
        return self._rooms.waiting()

    def close(self) -> None:
        self._server.close()


class Decode(Role):
    """The KV cache is taken from the room, at the bootstrap server that the request names."""

    leg = "Decode"

    def __init__(self, config: Config) -> None:
        self._config = config
        self._seconds = _seconds(DECODE_TIMEOUT_VARIABLE)

    def dp_rank(self, request: Request) -> int | None:
        _bootstrap(request)
        return request.dp_rank

    def before(self, leg: Leg) -> dict[str, object]:
        bootstrap = _bootstrap(leg.request)
        try:
            prefill_rank = take(bootstrap.address, bootstrap.room, self._config, self._seconds, leg.stop)
        except TransferError as error:
            raise _error(self, leg, str(error)) from None
        return {"room": bootstrap.room, "kv_from": bootstrap.address, "prefill_dp_rank": prefill_rank}


def open_role(config: Config, faults: Faults, registered: Callable[[], bool]) -> Role:
    """The role of a leader; the bootstrap server of a prefill engine listens when this returns.

    `registered` tells whether all ranks of the engine are up. Raises OSError when the bootstrap port is taken.
    """
    if config.disaggregation_mode == "prefill":
        return Prefill(config, faults, registered)
    return Decode(config) if config.disaggregation_mode == "decode" else Role()


def is_local(host: str) -> bool:
    """Whether `host` is, or resolves to, an address of this machine."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return any(_can_bind(family, address) for family, _, _, _, address in found)


def _can_bind(family: int, address: object) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind(address)  # type: ignore[arg-type]
    except OSError:
        return False
    return True


def _bootstrap(request: Request) -> Bootstrap:
    if request.bootstrap is None:
        raise RequestError(
            f"Invalid request: Disaggregated request received without bootstrap room id. rid={request.rid}; "
            "send requests to the router, not to a prefill or decode engine"
        )
    return request.bootstrap


def _error(role: Role, leg: Leg, reason: str) -> TransferError:
    """As SGLang's: the request, the room, why; and the address, which tells a wrong launch."""
    bootstrap = _bootstrap(leg.request)
    return TransferError(
        f"{role.leg} transfer failed for request rid={leg.request.rid} bootstrap_room={bootstrap.room} "
        f"bootstrap_addr={bootstrap.address} with exception KVTransferError: {reason}"
    )


def _seconds(variable: str) -> float:
    text = os.environ.get(variable, "")
    try:
        return float(text) if text else DEFAULT_TIMEOUT
    except ValueError:  # as SGLang does
        log.warning('Invalid value for %s: %r is not a number, using default "%g"', variable, text, DEFAULT_TIMEOUT)
        return DEFAULT_TIMEOUT
