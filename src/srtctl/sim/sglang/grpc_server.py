"""The native gRPC server, `sglang.runtime.v1.SglangService`: full on the leader, GetServerInfo alone on a follower."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from srtctl.sim.address import Address
from srtctl.sim.grpc_listener import FAILURES, GrpcListener, fail
from srtctl.sim.protobuf import build, service
from srtctl.sim.sglang.config import Config
from srtctl.sim.sglang.engine import Engine
from srtctl.sim.sglang.request import Bootstrap, Chunk, Request

SERVICE = "sglang.runtime.v1.SglangService"
MESSAGES = build(
    "sglang.runtime.v1",
    {
        "DisaggregatedParams": ("1 string bootstrap_host", "2 int32 bootstrap_port", "3 int64 bootstrap_room"),
        "SamplingParams": (
            *("1 ?float temperature", "2 ?float top_p", "3 ?int32 top_k", "4 ?float min_p"),
            *("5 ?float frequency_penalty", "6 ?float presence_penalty", "7 ?float repetition_penalty"),
            *("8 ?int32 max_new_tokens", "9 ?int32 min_new_tokens", "10 *string stop", "11 *int32 stop_token_ids"),
            *("12 ?bool ignore_eos", "13 ?int32 n", "14 ?string json_schema", "15 ?string regex"),
        ),
        "GenerateRequest": (
            *("1 *int32 input_ids", "2 ?SamplingParams sampling_params", "3 ?bool stream", "4 ?bool return_logprob"),
            *("5 ?int32 top_logprobs_num", "6 ?int32 logprob_start_len", "7 ?string rid", "8 ?string lora_path"),
            *("9 ?string routing_key", "10 ?int32 routed_dp_rank", "11 map<string,string> trace_headers"),
            *("12 ?string session_id", "13 ?DisaggregatedParams disaggregated_params"),
        ),
        "GenerateResponse": ("1 *int32 output_ids", "2 map<string,string> meta_info", "3 bool finished"),
        "HealthCheckRequest": (),
        "HealthCheckResponse": ("1 bool healthy",),
        "GetModelInfoRequest": (),
        "GetModelInfoResponse": ("1 string model_path", "2 string json_info"),
        "GetServerInfoRequest": (),
        "GetServerInfoResponse": ("1 string json_info",),
        "ListModelsRequest": (),
        "ListModelsResponse": ("1 *ModelCard models",),
        "ModelCard": ("1 string id", "2 string root", "3 ?string parent", "4 ?int32 max_model_len"),
        "AbortRequest": ("1 string rid", "2 bool abort_all"),
        "AbortResponse": ("1 bool success",),
    },
)


def open_server(
    config: Config,
    engine: Engine | None,
    server_info: dict[str, Any],
    model_info: dict[str, Any],
    healthy: Callable[[], bool],
) -> GrpcListener:
    """Bind `--host`:`--grpc-port` and serve; `engine` None is a follower. Raises OSError naming a taken address."""
    methods: dict[str, Callable[..., Any]] = {
        "GetServerInfo": lambda *_: MESSAGES["GetServerInfoResponse"](json_info=json.dumps(server_info)),
    }
    if engine:
        methods |= _leader_methods(config, engine, model_info, healthy)
    assert config.grpc_port is not None
    return GrpcListener(config.host, config.grpc_port, [service(SERVICE, MESSAGES, methods, frozenset({"Generate"}))])


def _leader_methods(
    config: Config, engine: Engine, model_info: dict[str, Any], healthy: Callable[[], bool]
) -> dict[str, Callable[..., Any]]:
    card = MESSAGES["ModelCard"](
        id=config.served_model_name, root=config.model_path, max_model_len=engine.context_length
    )

    def generate(message: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        request = _request(message)
        context.add_callback(lambda: engine.abort(request.rid))
        try:
            for chunk in engine.generate(request):
                yield _response(request, chunk)
        except FAILURES as error:
            fail(context, error)

    def abort(message: Any, _: grpc.ServicerContext) -> Any:
        engine.abort(message.rid, everything=message.abort_all)
        return MESSAGES["AbortResponse"](success=True)

    return {
        "Generate": generate,
        "Abort": abort,
        "HealthCheck": lambda *_: MESSAGES["HealthCheckResponse"](healthy=healthy()),
        "GetModelInfo": lambda *_: MESSAGES["GetModelInfoResponse"](
            model_path=config.model_path, json_info=json.dumps(model_info)
        ),
        "ListModels": lambda *_: MESSAGES["ListModelsResponse"](models=[card]),
    }


def _request(message: Any) -> Request:
    sampling = message.sampling_params
    return Request(
        rid=message.rid or uuid.uuid4().hex,
        tokens=tuple(message.input_ids),
        dp_rank=message.routed_dp_rank if message.HasField("routed_dp_rank") else None,
        max_new_tokens=sampling.max_new_tokens if sampling.HasField("max_new_tokens") else None,
        bootstrap=_bootstrap(message.disaggregated_params) if message.HasField("disaggregated_params") else None,
    )


def _bootstrap(params: Any) -> Bootstrap:
    return Bootstrap(Address(params.bootstrap_host, params.bootstrap_port), params.bootstrap_room)


def _response(request: Request, chunk: Chunk) -> Any:
    """A delta. Every value of meta_info is JSON text; the last response, and no other, has a finish reason."""
    meta: dict[str, Any] = {
        "id": request.rid,
        "prompt_tokens": chunk.prompt_tokens,
        "cached_tokens": chunk.cached_tokens,
        "completion_tokens": chunk.completion_tokens,
    }
    if chunk.abort:
        reason = {"type": "abort", "message": chunk.abort.message, "status_code": chunk.abort.status_code}
        meta["finish_reason"] = {**reason, "err_type": None}
    elif chunk.finished:
        meta["finish_reason"] = {"type": "length", "length": chunk.completion_tokens}
    return MESSAGES["GenerateResponse"](
        output_ids=chunk.tokens,
        meta_info={key: json.dumps(value) for key, value in meta.items()},
        finished=chunk.finished,
    )
