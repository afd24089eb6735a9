"""The native gRPC server: `vllm.Control`, `vllm.Inference` and the standard health service."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import grpc
from google.protobuf import json_format, struct_pb2

from srtctl.sim.errors import InternalError, RequestError, TransferError
from srtctl.sim.grpc_listener import FAILURES, GrpcListener, fail
from srtctl.sim.protobuf import service
from srtctl.sim.vllm.config import Config
from srtctl.sim.vllm.engine import Engine
from srtctl.sim.vllm.messages import (
    CONTROL,
    HEALTH,
    HEALTH_MESSAGES,
    INFERENCE,
    MESSAGES,
    NAMES,
    NOT_SERVING,
    SERVING,
)
from srtctl.sim.vllm.request import Chunk, Request

RANK_METADATA = "x-data-parallel-rank"
log = logging.getLogger("vllm")
Fields = Mapping[str, Any]


def open_server(
    config: Config,
    engine: Engine,
    server_info: Fields,
    model_info: Fields,
    sources: Sequence[Fields],
    healthy: Callable[[], bool],
) -> GrpcListener:
    """Bind `--host`:`--grpc-port` and serve. Raises OSError naming the address when it is taken."""
    assert config.grpc_port is not None
    return GrpcListener(
        config.host,
        config.grpc_port,
        (
            service(CONTROL, MESSAGES, _control(engine, server_info, model_info, sources), names=NAMES),
            service(
                INFERENCE, MESSAGES, {"GenerateStream": _generate(engine)}, frozenset({"GenerateStream"}), names=NAMES
            ),
            service(HEALTH, HEALTH_MESSAGES, {"Check": _health(healthy)}, names=NAMES),
        ),
    )


def _control(
    engine: Engine, server_info: Fields, model_info: Fields, sources: Sequence[Fields]
) -> dict[str, Callable[..., Any]]:
    parallelism = MESSAGES["ParallelismInfo"](**server_info["parallelism"])
    server = MESSAGES["ServerInfo"](**{**server_info, "parallelism": parallelism})
    published = MESSAGES["GetKvEventSourcesResponse"](sources=[MESSAGES["KvEventSource"](**each) for each in sources])

    def abort(message: Any, _: grpc.ServicerContext) -> Any:
        for rid in message.request_ids:
            engine.abort(rid)
        return MESSAGES["AbortResponse"]()

    return {
        "GetServerInfo": lambda *_: server,
        "GetModelInfo": lambda *_: MESSAGES["ModelInfo"](**model_info),
        "GetKvEventSources": lambda *_: published,
        "ListLoras": lambda *_: MESSAGES["ListLorasResponse"](),
        "Abort": abort,
    }


def _health(healthy: Callable[[], bool]) -> Callable[..., Any]:
    def check(message: Any, context: grpc.ServicerContext) -> Any:
        if message.service not in ("", CONTROL, INFERENCE):
            context.abort(grpc.StatusCode.NOT_FOUND, f"unknown service {message.service}")
        return HEALTH_MESSAGES["HealthCheckResponse"](status=SERVING if healthy() else NOT_SERVING)

    return check


def _generate(engine: Engine) -> Callable[..., Any]:
    def generate(message: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        try:
            request = _request(message, dict(context.invocation_metadata()))
            log.info("GenerateStream: rid=%s peer=%s", request.rid, context.peer())
            context.add_callback(lambda: engine.abort(request.rid))
            for number, chunk in zip(itertools.count(), engine.generate(request), strict=False):
                yield _response(request, chunk, first=number == 0)
        except FAILURES as error:
            if isinstance(error, InternalError | TransferError):
                context.send_initial_metadata(())  # what fails inside the engine ends a stream that has begun
            fail(context, error)

    return generate


def _request(message: Any, metadata: Mapping[str, Any]) -> Request:
    """Raises RequestError for a prompt that is no token ids, or a rank that is no number."""
    if message.WhichOneof("prompt") != "token_ids":
        raise RequestError("the simulated engine takes token ids, no text")
    rank = metadata.get(RANK_METADATA)
    if rank is not None and not str(rank).isdecimal():
        raise RequestError(f"{RANK_METADATA} is no rank: {rank!r}")
    return Request(
        rid=message.request_id,
        tokens=tuple(message.token_ids.ids),
        dp_rank=None if rank is None else int(rank),
        max_new_tokens=message.stopping.max_new_tokens or None,
        transfer=json_format.MessageToDict(message.kv.kv_transfer_params),
    )


def _response(request: Request, chunk: Chunk, *, first: bool) -> Any:
    """A delta; the first response has the size of the prompt, the last one, and no other, how the request ended."""
    output = MESSAGES["SequenceOutput"](num_tokens=len(chunk.tokens), token_ids=chunk.tokens, text=chunk.text)
    if chunk.finish is not None:
        output.finish_info.num_output_tokens = chunk.completion_tokens
        output.finish_info.finish_reason = int(chunk.finish)
        if chunk.transfer is not None:
            # through bytes: the table's Struct is of a pool of its own
            params = json_format.ParseDict(dict(chunk.transfer), struct_pb2.Struct())
            output.finish_info.kv_transfer_params.ParseFromString(params.SerializeToString())
    response = MESSAGES["GenerateResponse"](outputs=output)
    if first:
        response.prompt_info.num_prompt_tokens = len(request.tokens)
    return response
