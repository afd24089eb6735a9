"""A simulated vLLM process, and real gRPC clients of its native services."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from engine_process import DEADLINE, EngineProcess
from google.protobuf import json_format

from srtctl.sim.vllm.messages import CONTROL, HEALTH, HEALTH_MESSAGES, INFERENCE, MESSAGES, NAMES

EVENTS: dict[str, object] = {"enable_kv_cache_events": True, "publisher": "zmq", "topic": "kv-events"}


def events(port: int = 0) -> list[object]:
    """`--kv-events-config` with a publisher at that base port; 0: anywhere."""
    return ["--kv-events-config", json.dumps({**EVENTS, "endpoint": f"tcp://*:{port}"})]


class VllmServer(EngineProcess):
    """One `python -m vllm.entrypoints.cli.main serve` with the native server, unless it is headless."""

    def __init__(self, model: Path, log: Path, flags: list[object], environment: Mapping[str, str]) -> None:
        super().__init__(log)
        ports = [] if "--headless" in flags else self.ports
        argv = ["serve", model, "--served-model-name", "tiny", *ports, "--block-size", 4, *flags]
        self.start("vllm.entrypoints.cli.main", argv, {"VLLM_USE_RUST_FRONTEND": "1", **environment})

    def call(self, rpc: str, service: str = CONTROL, /, **fields: object) -> Any:
        """One unary RPC."""
        messages = HEALTH_MESSAGES if service == HEALTH else MESSAGES
        request, response = NAMES.get(rpc, (f"{rpc}Request", f"{rpc}Response"))
        with self.channel() as channel:
            method = channel.unary_unary(
                f"/{service}/{rpc}",
                request_serializer=messages[request].SerializeToString,
                response_deserializer=messages[response].FromString,
            )
            return method(messages[request](**fields), timeout=DEADLINE, wait_for_ready=True)

    def status(self, service: str = CONTROL) -> int:
        """What the health service says of `service`."""
        return int(self.call("Check", HEALTH, service=service).status)

    def sources(self) -> dict[int, str]:
        """Endpoint of each published KV event source, by DP rank."""
        return {source.data_parallel_rank: source.endpoint for source in self.call("GetKvEventSources").sources}

    @contextlib.contextmanager
    def stream(
        self,
        rank: int | None,
        tokens: list[int],
        rid: str = "rid",
        max_new_tokens: int = 4,
        transfer: Mapping[str, Any] | None = None,
    ) -> Iterator[Any]:
        """The responses of GenerateStream; `transfer` are kv_transfer_params."""
        request = MESSAGES["GenerateRequest"](request_id=rid, model="tiny")
        request.token_ids.ids.extend(tokens)
        request.stopping.max_new_tokens = max_new_tokens
        if transfer is not None:
            json_format.ParseDict(dict(transfer), request.kv.kv_transfer_params)
        with self.channel() as channel:
            method = channel.unary_stream(
                f"/{INFERENCE}/GenerateStream",
                request_serializer=MESSAGES["GenerateRequest"].SerializeToString,
                response_deserializer=MESSAGES["GenerateResponse"].FromString,
            )
            metadata = [] if rank is None else [("x-data-parallel-rank", str(rank))]
            yield method(request, metadata=metadata, timeout=DEADLINE, wait_for_ready=True)

    def generate(self, rank: int | None, tokens: list[int], **options: Any) -> tuple[str, Any]:
        """The generated text, and how it ended."""
        with self.stream(rank, tokens, **options) as responses:
            received = list(responses)
        assert [response.HasField("prompt_info") for response in received] == [True] + [False] * (len(received) - 1)
        ended = [response.outputs.HasField("finish_info") for response in received]
        assert ended == [False] * (len(received) - 1) + [True]
        return "".join(response.outputs.text for response in received), received[-1].outputs.finish_info
