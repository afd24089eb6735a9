"""The handover of a KV cache, shaped as vLLM's NixlConnector does it.

A prefill engine keeps the blocks of a request and answers with where they are; the decode engine gets that with its
request, connects to the named side channel, and takes the blocks by their ids. What NIXL reads by RDMA after the
handshake is the answer to a question on the same connection here, one JSON object a line.
"""

from __future__ import annotations

import itertools
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Mapping
from typing import Any

from srtctl.sim.address import Address
from srtctl.sim.channel import Channel, Message
from srtctl.sim.errors import TransferError
from srtctl.sim.listener import Listener

log = logging.getLogger("vllm")

# vLLM's own name: how long a prefill engine keeps blocks that nobody takes. Its default is 480 s.
KEEP_VARIABLE = "VLLM_NIXL_ABORT_REQUEST_TIMEOUT"
KEEP_SECONDS = 30.0
TAKE_SECONDS = 5.0
_first_block = itertools.count(1)


class SideChannel:
    """What one DP rank has to hand over, and the socket where it is asked for."""

    def __init__(self, address: Address, block_size: int) -> None:
        """Listen. Raises OSError, naming the address, when that cannot be (also where it is no address of this node)."""
        self.address = address
        self.engine_id = str(uuid.uuid4())
        self._block_size = block_size
        self._kept: dict[str, tuple[float, list[int]]] = {}
        self._keep_seconds = float(os.environ.get(KEEP_VARIABLE) or KEEP_SECONDS)
        self._lock = threading.Lock()
        try:
            family, *_, found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
            server = socket.create_server((str(found[0]), address.port), family=family)
        except OSError as error:
            raise OSError(f"cannot listen on the NIXL side channel {address}: {error}") from None
        self._listener = Listener(server, self._serve, "nixl")

    def keep(self, rid: str, prompt_tokens: int, tp: int) -> dict[str, Any]:
        """Keep the blocks of a prompt; returns the kv_transfer_params with which a decode engine finds them."""
        count = -(-prompt_tokens // self._block_size)
        blocks = list(itertools.islice(_first_block, count))
        now = time.monotonic()
        with self._lock:
            for other, (until, _) in list(self._kept.items()):
                if until < now:
                    log.warning("Releasing expired KV blocks for request %s", other)
                    del self._kept[other]
            self._kept[rid] = now + self._keep_seconds, blocks
        return {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_block_ids": [blocks],
            "remote_engine_id": self.engine_id,
            "remote_request_id": rid,
            "remote_host": self.address.host,
            "remote_port": self.address.port,
            "tp_size": tp,
        }

    def waiting(self) -> int:
        """How many requests have blocks here that nobody has taken yet."""
        now = time.monotonic()
        with self._lock:
            return sum(until > now for until, _ in self._kept.values())

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()

    def _serve(self, channel: Channel) -> None:
        while (question := channel.receive(TAKE_SECONDS)) is not None:
            channel.send(self._answer(question))

    def _answer(self, question: Message) -> Message:
        if "take" not in question:
            return {"engine_id": self.engine_id, "block_size": self._block_size}
        rid, wanted = str(question["take"]), question.get("blocks")
        with self._lock:
            _, blocks = self._kept.get(rid, (0.0, None))
            if blocks is None:
                return {"refused": f"it keeps no blocks of request {rid}"}
            if wanted != blocks:
                return {"refused": f"it keeps blocks {blocks} of request {rid}, not {wanted}"}
            del self._kept[rid]
        return {"taken": len(blocks)}


def take(params: Mapping[str, Any], block_size: int) -> int:
    """Take the blocks that a prefill engine's `params` name; returns how many. Raises TransferError."""
    try:
        # Numbers become doubles on their way through protobuf's Struct, and Dynamo makes the port a string
        address = Address(str(params["remote_host"]), int(params["remote_port"]))
        blocks = [int(block) for group in params["remote_block_ids"] for block in group]
        engine_id, rid = str(params["remote_engine_id"]), str(params["remote_request_id"])
    except (KeyError, TypeError, ValueError) as error:
        raise TransferError(f"kv_transfer_params cannot be used: {error!r} in {dict(params)}") from None
    try:
        connection = socket.create_connection((address.host, address.port), timeout=TAKE_SECONDS)
    except OSError as error:
        raise TransferError(f"NIXL handshake with {address} failed: {error}") from None
    channel = Channel(connection)
    try:
        met = _ask(channel, {"hello": True}, address)
        if met.get("engine_id") != engine_id:
            raise TransferError(
                f"NIXL handshake with {address} failed: remote engine id mismatch, expected {engine_id}"
            )
        if met.get("block_size") != block_size:
            raise TransferError(
                f"NIXL handshake with {address} failed: block size {met.get('block_size')} there, {block_size} here"
            )
        answer = _ask(channel, {"take": rid, "blocks": blocks}, address)
    finally:
        channel.close()
    if "refused" in answer:
        raise TransferError(f"NIXL transfer from {address} failed: {answer['refused']}")
    return int(answer["taken"])


def _ask(channel: Channel, question: Message, address: Address) -> Message:
    try:
        channel.send(question)
        answer = channel.receive(TAKE_SECONDS)
    except OSError as error:
        raise TransferError(f"NIXL handshake with {address} failed: {error}") from None
    if answer is None:
        raise TransferError(f"NIXL handshake with {address} failed: it closed the connection")
    return answer
