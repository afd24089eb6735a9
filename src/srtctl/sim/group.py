"""The formed group: barriers, requests from the leader to followers, and noticing that a member is gone."""

from __future__ import annotations

import contextlib
import itertools
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from srtctl.sim.channel import Channel, Message
from srtctl.sim.errors import MemberLostError
from srtctl.sim.rendezvous import Membership, Rendezvous, join

Handler = Callable[[Message], Message]


class Group:
    """The connections of one process: the leader's to every follower, a follower's to the leader. Alone: none."""

    def __init__(
        self,
        leader: bool,
        members: dict[int, Channel],
        rendezvous: Rendezvous | None,
        handle: Handler,
        on_lost: Callable[[MemberLostError], None],
    ) -> None:
        """`handle` answers the leader's requests; `on_lost` is called, from a thread, when a member goes away."""
        self._leader = leader
        self._members = members
        self._rendezvous = rendezvous
        self._handle = handle
        self._on_lost = on_lost
        self._closed = False
        self._ids = itertools.count()
        self._pending: dict[int, tuple[int, Future[Message]]] = {}
        self._gone: dict[int, MemberLostError] = {}
        self._lock = threading.Lock()
        self._arrivals: queue.SimpleQueue[MemberLostError | None] = queue.SimpleQueue()
        for rank, channel in members.items():
            threading.Thread(target=self._read, args=(rank, channel), name=f"node-{rank}", daemon=True).start()

    def barrier(self) -> None:
        """Wait until every member is here too. Raises MemberLostError when one goes away instead."""
        if not self._leader:
            self._announce()
        for _ in self._members:
            lost = self._arrivals.get()
            if lost is not None:
                raise lost
        if self._leader:
            self._announce()

    def call(self, node_rank: int, request: Message) -> Message:
        """Let a member handle `request`; returns its answer. Raises MemberLostError when it is gone."""
        number = next(self._ids)
        answer: Future[Message] = Future()
        with self._lock:
            if node_rank in self._gone:
                raise self._gone[node_rank]
            self._pending[number] = (node_rank, answer)
        try:
            self._members[node_rank].send({"kind": "call", "id": number, "request": request})
        except OSError as error:
            raise MemberLostError(f"node_rank {node_rank} is gone: {error}") from None
        return answer.result()

    def close(self) -> None:
        """Leave the group."""
        self._closed = True
        for channel in self._members.values():
            channel.close()
        if self._rendezvous:
            self._rendezvous.close()

    def _announce(self) -> None:
        for rank, channel in self._members.items():
            try:
                channel.send({"kind": "here"})
            except OSError as error:
                raise MemberLostError(f"node_rank {rank} is gone: {error}") from None

    def _read(self, rank: int, channel: Channel) -> None:
        while (message := channel.receive()) is not None:
            kind = message.get("kind")
            if kind == "here":
                self._arrivals.put(None)
            elif kind == "call":
                with contextlib.suppress(OSError):  # the next receive() tells that the leader is gone
                    channel.send({"kind": "answer", "id": message["id"], "answer": self._handle(message["request"])})
            elif kind == "answer":
                with self._lock:
                    _, answer = self._pending.pop(message["id"])
                answer.set_result(message["answer"])
        self._lost(rank)

    def _lost(self, rank: int) -> None:
        error = MemberLostError(f"remote process exited or there was a network error: node_rank {rank} left the group")
        self._arrivals.put(error)
        with self._lock:
            self._gone[rank] = error
            waiting = [number for number, (node, _) in self._pending.items() if node == rank]
            answers = [self._pending.pop(number)[1] for number in waiting]
        for answer in answers:
            answer.set_exception(error)
        if not self._closed:
            self._on_lost(error)


def form(mine: Membership, timeout: float, handle: Handler, on_lost: Callable[[MemberLostError], None]) -> Group:
    """Form the group of `mine`'s engine: bind and gather on the leader, join on a follower.

    Raises GroupError, or OSError when the leader cannot bind its address.
    """
    arguments: dict[str, Any] = {"handle": handle, "on_lost": on_lost}
    leader = mine.node_rank == 0
    if mine.address is None:
        return Group(leader, {}, None, **arguments)
    if not leader:
        return Group(leader, {0: join(mine.address, mine, timeout)}, None, **arguments)
    rendezvous = Rendezvous(mine.address, mine.flag)
    try:
        return Group(leader, rendezvous.gather(mine, timeout), rendezvous, **arguments)
    except BaseException:
        rendezvous.close()
        raise
