"""A listening gRPC server, and the status of each way in which a request fails."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent import futures
from typing import NoReturn

import grpc

from srtctl.sim.errors import GroupError, InternalError, RequestError, TransferError, UnavailableError

WORKERS = 64
CLOSE_SECONDS = 2.0
STATUS: dict[type[Exception], grpc.StatusCode] = {
    RequestError: grpc.StatusCode.INVALID_ARGUMENT,
    UnavailableError: grpc.StatusCode.UNAVAILABLE,
    GroupError: grpc.StatusCode.UNAVAILABLE,
    InternalError: grpc.StatusCode.INTERNAL,
    TransferError: grpc.StatusCode.INTERNAL,
}
FAILURES = tuple(STATUS)


class GrpcListener:
    """Services on one address."""

    def __init__(self, host: str, port: int, services: Iterable[grpc.GenericRpcHandler]) -> None:
        """Bind and serve. Raises OSError naming the address when it is taken."""
        self._server = grpc.server(
            futures.ThreadPoolExecutor(WORKERS),
            options=[("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", -1)],
        )
        self._server.add_generic_rpc_handlers(tuple(services))
        try:
            bound = self._server.add_insecure_port(f"{host}:{port}")
        except RuntimeError:
            bound = 0
        if not bound:
            self.close()
            raise OSError(f"gRPC server error: transport error: address already in use: {host}:{port}")
        self._server.start()

    def close(self, grace: float | None = None) -> None:
        """Stop; requests that still run are cancelled, after `grace` seconds (None: at once)."""
        self._server.stop(grace).wait(timeout=CLOSE_SECONDS)


def fail(context: grpc.ServicerContext, error: Exception) -> NoReturn:
    """End the call as `error`, one of FAILURES, says."""
    context.abort(next(code for kind, code in STATUS.items() if isinstance(error, kind)), str(error))
    raise AssertionError("abort() raises")
