"""A client of one vLLM gRPC address: an engine itself, or the request plane of the sidecar before it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import grpc

from srtctl.sim.vllm.messages import CONTROL, HEALTH, HEALTH_MESSAGES, INFERENCE, MESSAGES, NAMES, SERVING

GENERATE = f"/{INFERENCE}/GenerateStream"
POLL_SECONDS = 0.2
#: No proxy, and no connection shared with another client in this process: who calls whom can be seen on the wire.
OPTIONS = (("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1))


class ConnectError(Exception):
    """The address did not answer, or is no vLLM server that serves."""


class EngineError(Exception):
    """A request failed; `code` is gRPC's word for how."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class EngineInfo:
    """What an engine says of itself. `ranks` are the global DP ranks whose requests it takes."""

    model_path: str
    served_name: str
    context_length: int
    block_size: int
    blocks: int
    ranks: range


class EngineClient:
    """One connection. It outlives `drop` until the last request that uses it has ended."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._channel = grpc.insecure_channel(address.removeprefix("http://"), options=OPTIONS)
        self._lock = threading.Lock()
        self._users, self._dropped = 0, False

    def wait(self, seconds: float, stopped: Callable[[], bool] = lambda: False) -> None:
        """Wait until both services serve. Raises ConnectError when they do not in time, or once `stopped`."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                self._check_health(max(deadline - time.monotonic(), 0.01))
                return
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                    raise ConnectError(f"{self.address} has no gRPC health service") from None
                reason = error.code().name
            except ConnectError as error:
                reason = str(error)
            if time.monotonic() >= deadline or stopped():
                raise ConnectError(f"{self.address}: {reason}")
            time.sleep(min(POLL_SECONDS, max(deadline - time.monotonic(), 0)))

    def info(self, seconds: float) -> EngineInfo:
        """Ask the engine. Raises ConnectError where it does not answer as vLLM does."""
        try:
            model = self._ask("GetModelInfo", seconds)
            server = self._ask("GetServerInfo", seconds)
        except grpc.RpcError as error:
            raise ConnectError(f"{self.address}: {error.code().name}") from None
        if server.api_version != "vllm":
            raise ConnectError(f"{self.address} is no vLLM server, but {server.api_version!r}")
        first, sizes = server.parallelism.data_parallel_rank, server.parallelism
        local = sizes.data_parallel_size_local or sizes.data_parallel_size or 1
        return EngineInfo(
            model_path=model.model_id,
            served_name=model.served_model_name,
            context_length=server.max_model_len,
            block_size=server.kv_block_size,
            blocks=server.total_kv_blocks // local,
            ranks=range(first, first + local),
        )

    def generate(self, request: bytes, metadata: tuple[tuple[str, str], ...]) -> Iterator[bytes]:
        """The messages of `GenerateStream`, as they are on the wire. Closing it cancels the request.

        Raises EngineError.
        """
        with self._lock:
            if self._dropped:
                raise EngineError(grpc.StatusCode.UNAVAILABLE, f"{self.address} has departed")
            self._users += 1
        try:
            start = self._channel.unary_stream(GENERATE, request_serializer=bytes, response_deserializer=bytes)
            call = start(request, metadata=metadata)
            try:
                yield from call
            finally:
                call.cancel()
        except grpc.RpcError as error:
            raise EngineError(error.code(), error.details() or error.code().name) from None
        finally:
            self._leave()

    def drop(self) -> None:
        """Start no more requests; the connection closes once those that run have ended."""
        with self._lock:
            self._dropped = True
            idle = not self._users
        if idle:
            self._channel.close()

    def _leave(self) -> None:
        with self._lock:
            self._users -= 1
            last = self._dropped and not self._users
        if last:
            self._channel.close()

    def _check_health(self, seconds: float) -> None:
        check = self._channel.unary_unary(
            f"/{HEALTH}/Check",
            request_serializer=HEALTH_MESSAGES["HealthCheckRequest"].SerializeToString,
            response_deserializer=HEALTH_MESSAGES["HealthCheckResponse"].FromString,
        )
        for service in (CONTROL, INFERENCE):
            answer = check(HEALTH_MESSAGES["HealthCheckRequest"](service=service), timeout=seconds)
            if answer.status != SERVING:
                raise ConnectError(f"{service} does not serve")

    def _ask(self, rpc: str, seconds: float) -> Any:
        request, response = (MESSAGES[name] for name in NAMES[rpc])
        ask = self._channel.unary_unary(
            f"/{CONTROL}/{rpc}",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )
        return ask(request(), timeout=seconds)
