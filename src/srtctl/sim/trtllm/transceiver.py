"""The cache transceiver: a prefill engine offers KV caches on a port of its own, a decode engine fetches them there.

The real one moves them by UCX or NIXL after a handshake over such a port; here the handshake is all there is. What a
session needs stands in its attributes, under the names that TensorRT-LLM's OpenEngine server reads.
"""

from __future__ import annotations

import base64
import contextlib
import secrets
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from srtctl.sim.channel import Channel
from srtctl.sim.listener import Listener
from srtctl.sim.openengine.engine import FailedError, Session

HANDSHAKE_SECONDS = 5.0
ENDPOINT, STATE, DP_RANK, FIRST_TOKENS = "ctx_info_endpoint", "opaque_state", "ctx_dp_rank", "first_gen_tokens"


@dataclass(frozen=True)
class _Offer:
    state: str
    prompt_tokens: int
    until: float


class Transceiver:
    """The listening side. Thread-safe."""

    def __init__(self, host: str, advertised: str, backend: str, seconds: float) -> None:
        """Listen on a free port of `host`; `advertised` is the address that others can reach. Raises OSError."""
        self._backend, self._seconds = backend, seconds
        self._offers: dict[str, _Offer] = {}
        self._lock = threading.Lock()
        self._listener = Listener(socket.create_server((host, 0)), self._serve, "transceiver")
        self.host, self.port = advertised, self._listener.port

    def offer(self, prompt_tokens: int, first_token: int) -> Session:
        """Keep a KV cache until somebody fetches it, or its time is over."""
        session_id, state = str(secrets.randbits(62)), base64.b64encode(secrets.token_bytes(16)).decode()
        with self._lock:
            self._offers[session_id] = _Offer(state, prompt_tokens, time.monotonic() + self._seconds)
        endpoint = f"{self.host}:{self.port}"
        return Session(session_id, 0, {ENDPOINT: endpoint, STATE: state, DP_RANK: 0, FIRST_TOKENS: [first_token]})

    def waiting(self) -> int:
        """How many KV caches nobody has fetched yet; those whose time is over are dropped."""
        with self._lock:
            now = time.monotonic()
            self._offers = {name: offer for name, offer in self._offers.items() if offer.until > now}
            return len(self._offers)

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()

    def _serve(self, channel: Channel) -> None:
        if (asked := channel.receive(HANDSHAKE_SECONDS)) is not None:
            channel.send(self._take(asked))

    def _take(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        if asked.get("backend") != self._backend:
            return {"error": f"this engine's transceiver is {self._backend}, yours is {asked.get('backend')}"}
        with self._lock:
            offer = self._offers.get(str(asked.get("session_id")))
            if offer is None or offer.state != asked.get("state") or offer.until <= time.monotonic():
                return {"unknown": f"no KV cache is offered as session {asked.get('session_id')}"}
            del self._offers[str(asked["session_id"])]
            return {"prompt_tokens": offer.prompt_tokens}


def fetch(session: Session, prompt_tokens: int, backend: str) -> tuple[int, ...]:
    """Fetch the KV cache of a session, at the engine that it names; returns the first generated tokens.

    Raises FailedError: the session is not one of TensorRT-LLM's, the engine cannot be reached or does not know it,
    its transceiver is of another kind, or the cache is that of another prompt.
    """
    host, port, state, first = _read(session)
    try:
        connection = socket.create_connection((host, port), timeout=HANDSHAKE_SECONDS)
        with contextlib.closing(Channel(connection)) as channel:
            channel.send({"session_id": session.session_id, "state": state, "backend": backend})
            answer = channel.receive(HANDSHAKE_SECONDS)
    except OSError as error:
        raise FailedError("KV_TRANSFER_FAILED", f"cannot fetch the KV cache from {host}:{port}: {error}") from None
    if answer is None or "error" in answer:
        why = answer["error"] if answer else "it closed the connection"
        raise FailedError("KV_TRANSFER_FAILED", f"the context engine at {host}:{port} refuses: {why}")
    if "unknown" in answer:
        raise FailedError("KV_SESSION_NOT_FOUND", f"the context engine at {host}:{port} says: {answer['unknown']}")
    if answer["prompt_tokens"] != prompt_tokens:
        lengths = f"{answer['prompt_tokens']} tokens, the request has {prompt_tokens}"
        raise FailedError("KV_TRANSFER_FAILED", f"session {session.session_id} is another prompt's: {lengths}")
    return first


def _read(session: Session) -> tuple[str, int, str, tuple[int, ...]]:
    given = session.attributes
    host, _, port = str(given.get(ENDPOINT, "")).rpartition(":")
    if not host or not port.isdecimal() or not isinstance(given.get(STATE), str):
        missing = f"its attributes have {', '.join(sorted(given)) or 'nothing'}"
        raise FailedError("INVALID_ARGUMENT", f"session {session.session_id!r} is none of TensorRT-LLM's: {missing}")
    return host, int(port), given[STATE], tuple(int(token) for token in given.get(FIRST_TOKENS, []))
