"""One connection between two processes of an engine: JSON objects, one a line."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from typing import Any

Message = dict[str, Any]

# A peer whose machine is gone sends no FIN: the kernel asks after 5 silent seconds, and gives up after 3 questions.
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 5), (socket.TCP_KEEPINTVL, 2), (socket.TCP_KEEPCNT, 3))


class Channel:
    """A connected socket. One thread may receive while any thread sends."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE:
            self._socket.setsockopt(socket.IPPROTO_TCP, option, value)
        self._lines = connection.makefile("rb")
        self._sending = threading.Lock()

    def send(self, message: Message) -> None:
        """Send one message. Raises OSError when the peer is gone."""
        with self._sending:
            self._socket.sendall(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    def receive(self, timeout: float | None = None) -> Message | None:
        """The next message, or None when the peer went away or does not speak this protocol.

        Raises TimeoutError after `timeout` seconds (None: waits for ever); the channel is unusable afterwards.
        """
        self._socket.settimeout(timeout)
        try:
            message = json.loads(self._lines.readline())
        except TimeoutError:
            raise
        except (OSError, ValueError):
            return None
        return message if isinstance(message, dict) else None

    def close(self) -> None:
        """Close the connection; a thread that waits in `receive` gets None."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._lines.close()
        self._socket.close()
