"""A listening socket whose connections are served by threads of their own."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

from srtctl.sim.channel import Channel


class Listener:
    """Serves every connection to `server` until it is closed; what `serve` says of a broken connection is ignored."""

    def __init__(self, server: socket.socket, serve: Callable[[Channel], None], name: str) -> None:
        self.port = int(server.getsockname()[1])
        self._server, self._serve = server, serve
        threading.Thread(target=self._accept, name=name, daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(Channel(connection),), daemon=True).start()

    def _answer(self, channel: Channel) -> None:
        with contextlib.closing(channel), contextlib.suppress(OSError):
            self._serve(channel)
