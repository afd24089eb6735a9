"""A small HTTP server: routes by path, each request in a thread."""

from __future__ import annotations

import http.server
import json
import socketserver
import threading
from collections.abc import Callable

Answer = tuple[int, str, str]  # status, content type, body
Route = Callable[[], Answer]


def text_answer(content: str = "") -> Answer:
    """A plain-text answer."""
    return 200, "text/plain", content


def json_answer(content: object, status: int = 200) -> Answer:
    """A JSON answer."""
    return status, "application/json", json.dumps(content)


class HttpServer:
    """The listening server."""

    def __init__(self, host: str, port: int, routes: dict[str, Route], healthy: Callable[[], bool]) -> None:
        """Bind and serve. `routes` answer GET and POST by path; while `healthy` is false everything is 503.

        Raises OSError, naming the address, when it cannot be bound.
        """
        self._server = bind(host, port, _handler(routes, healthy))
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, name="http", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop at once."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # HTTPServer's own asks DNS for the host's name


def bind(host: str, port: int, handler: type[http.server.BaseHTTPRequestHandler]) -> socketserver.BaseServer:
    """A bound server that runs each request in a thread. Raises OSError, naming the address."""
    try:
        return _Server((host, port), handler)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise OSError(
            f"[Errno {error.errno}] error while attempting to bind on address ('{host}', {port}): {reason}"
        ) from None


def _handler(table: dict[str, Route], healthy: Callable[[], bool]) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            route = table.get(self.path.partition("?")[0])
            if not healthy():
                answer = json_answer({"error": "not ready"}, 503)
            elif route is None:
                answer = json_answer({"detail": "Not Found"}, 404)
            else:
                answer = route()
            status, kind, body = answer
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

        do_POST = do_GET  # noqa: N815  (bodies are ignored)

        def log_message(self, *_: object) -> None:
            """Health polls would drown the log."""

    return Handler
