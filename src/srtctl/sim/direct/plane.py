"""The reference sidecar's two servers: its request plane, and the status server that Dynamo's sidecars have."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from concurrent import futures
from pathlib import Path

import grpc

from srtctl.sim.direct.card import FILES
from srtctl.sim.direct.engine import EngineClient, EngineError
from srtctl.sim.http_server import Route, json_answer, text_answer
from srtctl.sim.vllm.messages import INFERENCE

REQUESTS = "dynamo_component_requests_total"
_WORKERS = 64
_CLOSE_SECONDS = 2.0


class RequestPlane:
    """Takes requests for the engine and passes them on as they are; stands in for Dynamo's own TCP protocol."""

    def __init__(self, engine: EngineClient, host: str) -> None:
        """Listen on any port of `host`. Raises OSError when it cannot."""
        self._engine = engine
        self._lock = threading.Lock()
        self._requests = 0
        self._server = grpc.server(futures.ThreadPoolExecutor(_WORKERS), options=[("grpc.so_reuseport", 0)])
        stream = grpc.unary_stream_rpc_method_handler(self._generate, bytes, bytes)
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(INFERENCE, {"GenerateStream": stream}),)
        )
        try:
            port = self._server.add_insecure_port(f"{host}:0")
        except RuntimeError as error:
            raise OSError(f"the request plane cannot listen on {host}: {error}") from None
        self.address = f"{host}:{port}"
        self._server.start()

    @property
    def requests(self) -> int:
        """How many requests came in here."""
        with self._lock:
            return self._requests

    def close(self) -> None:
        """Stop at once; requests that run are cancelled."""
        self._server.stop(None).wait(timeout=_CLOSE_SECONDS)

    def _generate(self, request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        with self._lock:
            self._requests += 1
        try:
            yield from self._engine.generate(request, _passed_on(context))
        except EngineError as error:
            context.abort(error.code, str(error))


def _passed_on(context: grpc.ServicerContext) -> tuple[tuple[str, str], ...]:
    """The caller's own metadata, without what gRPC adds by itself."""
    return tuple(
        (key, value) for key, value in context.invocation_metadata() if key.startswith("x-") and isinstance(value, str)
    )


def status_routes(model_folder: Path, base: str, requests: RequestPlane, labels: Mapping[str, str]) -> dict[str, Route]:
    """What the status server answers: health, metrics, and below `base` the model's files."""
    shown = ",".join(f'{name}="{value}"' for name, value in sorted(labels.items()))
    routes: dict[str, Route] = {
        "/health": lambda: json_answer({"status": "ready"}),
        "/metrics": lambda: text_answer(f"# TYPE {REQUESTS} counter\n{REQUESTS}{{{shown}}} {requests.requests}\n"),
    }
    for name in FILES:
        if (model_folder / name).is_file():
            routes[f"{base}/{name}"] = _file(model_folder / name)
    return routes


def _file(path: Path) -> Route:
    return lambda: (200, "application/json", path.read_text(encoding="utf-8"))
