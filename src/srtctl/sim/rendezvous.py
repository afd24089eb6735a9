"""How the processes of an engine find each other: the leader listens on an address, followers join there."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from srtctl.sim.address import Address
from srtctl.sim.channel import Channel
from srtctl.sim.errors import GroupError

HELLO_SECONDS = 10.0
RETRY_SECONDS = 0.2


@dataclass(frozen=True)
class Membership:
    """What one process knows of its engine's group. `address` is the leader's, None for an engine of one process.

    `sizes` are those that all processes must agree on; `flag` is where the address was written.
    """

    node_rank: int
    nnodes: int
    address: Address | None
    sizes: Mapping[str, object]
    flag: str


class Rendezvous:
    """The leader's listening socket, held for as long as the engine runs."""

    def __init__(self, address: Address, flag: str) -> None:
        """Bind and listen. Raises OSError, naming the address (also when the name does not resolve) and its flag."""
        self.address = address
        try:
            family, *_, sockaddr = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
            self._listener = socket.create_server((str(sockaddr[0]), address.port), family=family)
        except OSError as error:
            raise OSError(f"cannot listen on {flag} {address}: {error}") from None
        self._hellos: queue.Queue[tuple[Channel, dict[str, Any]]] = queue.Queue()
        self._formed = False
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, name="rendezvous", daemon=True).start()

    def gather(self, mine: Membership, timeout: float) -> dict[int, Channel]:
        """Wait until every follower has joined; returns their channels by node rank.

        Raises GroupError, after telling everyone who did join, when a process with other sizes or a taken node rank
        joins, or when some are still missing after `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        members: dict[int, Channel] = {}
        channel: Channel | None = None
        try:
            while len(members) < mine.nnodes - 1:
                missing = [rank for rank in range(1, mine.nnodes) if rank not in members]
                try:
                    channel, hello = self._hellos.get(timeout=max(deadline - time.monotonic(), 0))
                except queue.Empty:
                    raise GroupError(
                        f"Timed out after {timeout:g}s waiting for clients: node_rank {', '.join(map(str, missing))} "
                        f"did not join at {self.address}"
                    ) from None
                rank = _admit(hello, mine.sizes, missing)
                members[rank] = channel
            self._refuse_others()
            for member in members.values():
                member.send({"kind": "welcome"})
        except (GroupError, OSError) as error:
            for member in {*members.values(), *([channel] if channel else [])}:
                with contextlib.suppress(OSError):
                    member.send({"kind": "refused", "reason": str(error)})
                member.close()
            raise GroupError(str(error)) from None
        return members

    def close(self) -> None:
        """Stop listening."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self._listener.close()

    def _refuse_others(self) -> None:
        with self._lock:
            self._formed = True
            while not self._hellos.empty():
                self._refuse(*self._hellos.get())

    def _refuse(self, channel: Channel, hello: dict[str, Any]) -> None:
        reason = f"the group at {self.address} has formed already; node_rank {hello.get('node_rank')} is taken"
        with contextlib.suppress(OSError):
            channel.send({"kind": "refused", "reason": reason})
        channel.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._greet, args=(Channel(connection),), daemon=True).start()

    def _greet(self, channel: Channel) -> None:
        try:
            hello = channel.receive(HELLO_SECONDS)
        except TimeoutError:
            hello = None
        if hello is None or hello.get("kind") != "join":
            channel.close()  # a port probe, or a stranger
            return
        with self._lock:
            if not self._formed:
                self._hellos.put((channel, hello))
                return
        self._refuse(channel, hello)


def join(address: Address, mine: Membership, timeout: float) -> Channel:
    """Join the leader at `address`; returns the channel to it once the whole group has formed.

    A leader that is not there yet is tried again. Raises GroupError after `timeout` seconds or when it refuses.
    """
    deadline = time.monotonic() + timeout
    node_rank = mine.node_rank
    late = f"node_rank {node_rank} could not join the group at {address} within {timeout:g}s"
    channel = _connect(address, deadline, late, mine.flag)
    try:
        channel.send({"kind": "join", "node_rank": node_rank, "sizes": dict(mine.sizes)})
        answer = channel.receive(max(deadline - time.monotonic(), RETRY_SECONDS))
    except TimeoutError:
        channel.close()
        raise GroupError(f"{late}: other nodes are missing") from None
    except OSError as error:
        channel.close()
        raise GroupError(f"{late}: {error}") from None
    if answer is not None and answer.get("kind") == "welcome":
        return channel
    channel.close()
    if answer is None:
        raise GroupError(f"node_rank {node_rank}: {address} closed the connection; is that the leader of this engine?")
    raise GroupError(f"node_rank {node_rank} was refused by {address}: {answer.get('reason')}")


def _connect(address: Address, deadline: float, late: str, flag: str) -> Channel:
    while True:
        left = deadline - time.monotonic()
        try:
            connection = socket.create_connection((address.host, address.port), timeout=max(left, RETRY_SECONDS))
            if connection.getsockname() != connection.getpeername():
                return Channel(connection)
            connection.close()  # TCP met itself: a local port that nobody listens on, taken as the source port
        except OSError as error:
            if deadline - time.monotonic() <= RETRY_SECONDS:
                raise GroupError(f"{late}: {error}; check {flag}") from None
        time.sleep(RETRY_SECONDS)


def _admit(hello: dict[str, Any], expected: Mapping[str, object], missing: list[int]) -> int:
    rank, theirs, sizes = hello.get("node_rank"), hello.get("sizes"), dict(expected)
    if theirs != sizes:
        raise GroupError(f"node_rank {rank} was started with other sizes than node_rank 0: {theirs}, not {sizes}")
    if not isinstance(rank, int) or rank not in missing:
        raise GroupError(f"node_rank {rank} joined, but only {missing} are missing; is one node rank given twice?")
    return rank
