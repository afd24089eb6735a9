"""The reference frontend's HTTP: /v1/chat/completions, /v1/models, /health and /metrics."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import grpc

from srtctl.sim.direct.chat import BadRequestError, completion, events, read_request
from srtctl.sim.direct.dispatch import Dispatch, Tokenizers
from srtctl.sim.direct.engine import EngineError
from srtctl.sim.direct.router import PinError, Router
from srtctl.sim.http_server import bind

REGISTERED = "dynamo_component_router_worker_registered"
RUNNING, SENT = "reference_frontend_running_requests", "reference_frontend_requests_total"
#: What Dynamo 1.6.1 answers for what the engine said.
_STATUS = {grpc.StatusCode.INVALID_ARGUMENT: 400, grpc.StatusCode.UNAVAILABLE: 503}


class Web:
    """The listening server."""

    def __init__(self, host: str, port: int, router: Router) -> None:
        """Bind and serve. Raises OSError, naming the address, when it cannot be bound."""
        self._server = bind(host, port, _handler(router))
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, name="http", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop at once."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def metrics(router: Router) -> Iterator[str]:
    """The lines of /metrics: registrations as Dynamo's router counts them, then what this frontend alone has."""
    yield f"# TYPE {REGISTERED} gauge"
    for member in router.members():
        for rank in member.ranks:
            labels = f'dp_rank="{rank}",dynamo_component="backend",dynamo_namespace="dynamo",'
            labels += f'router_worker_id="{member.worker_id}",worker_id="reference",worker_type="decode"'
            yield f"{REGISTERED}{{{labels}}} 1"
    for (worker_id, rank), count in sorted(router.running().items()):
        yield f'{RUNNING}{{router_worker_id="{worker_id}",dp_rank="{rank}"}} {count}'
    for (worker_id, path), count in sorted(router.sent().items()):
        yield f'{SENT}{{router_worker_id="{worker_id}",path="{path}"}} {count}'


def _handler(router: Router) -> type[http.server.BaseHTTPRequestHandler]:
    tokenizers = Tokenizers()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            names = sorted({member.model for member in router.members()})
            match self.path.partition("?")[0]:
                case "/health":
                    self._json(200, {"status": "healthy" if names else "starting"})
                case "/metrics":
                    self._send(200, "text/plain", "".join(f"{line}\n" for line in metrics(router)))
                case "/v1/models":
                    self._json(200, {"object": "list", "data": [{"id": name, "object": "model"} for name in names]})
                case _:
                    self._json(404, _error(404, "Not Found"))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.path.partition("?")[0] != "/v1/chat/completions":
                self._json(404, _error(404, "Not Found"))
                return
            try:
                dispatch = Dispatch(read_request(body), router, tokenizers)
            except BadRequestError as error:
                self._json(400, _error(400, str(error)))
            except PinError as error:
                self._json(error.status, _error(error.status, str(error)))
            except (OSError, ValueError, KeyError) as error:
                self._json(503, _error(503, f"no tokenizer: {error}"))
            else:
                with contextlib.closing(dispatch):
                    self._stream(dispatch) if dispatch.request.stream else self._whole(dispatch)

        def _whole(self, dispatch: Dispatch) -> None:
            try:
                for _ in dispatch.texts():
                    pass
            except EngineError as error:
                status = _STATUS.get(error.code, 500)
                self._json(status, _error(status, str(error)))
                return
            self._json(200, completion(dispatch.request, dispatch.booking, dispatch.answer, dispatch.first_ms))

        def _stream(self, dispatch: Dispatch) -> None:
            with contextlib.suppress(OSError), contextlib.closing(dispatch.texts()) as texts:  # a client may have gone
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                try:
                    for event in events(dispatch.request, texts, dispatch.answer):
                        self._event(json.dumps(event))
                except EngineError as error:
                    self._event(json.dumps({"error": _error(_STATUS.get(error.code, 500), str(error))}))
                self._event("[DONE]")

        def _event(self, data: str) -> None:
            self.wfile.write(f"data: {data}\n\n".encode())
            self.wfile.flush()

        def _json(self, status: int, content: object) -> None:
            self._send(status, "application/json", json.dumps(content))

        def _send(self, status: int, kind: str, text: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            """Health polls would drown the log."""

    return Handler


def _error(status: int, message: str) -> dict[str, Any]:
    return {"message": message, "type": http.client.responses.get(status, "error"), "code": status}
