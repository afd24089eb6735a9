"""A client of OpenEngine for the tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import grpc
from google.protobuf import json_format, struct_pb2

from srtctl.sim.openengine.schema import CONTROL, INFERENCE, MESSAGES

SECONDS = 20.0


class Client:
    """One channel to an engine. Streams are iterators of responses with `cancel()`; a failed call raises RpcError."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)])

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def call(self, rpc: str, **fields: Any) -> Any:
        """A unary method of `Control`; waits for the server to listen."""
        return self._method("unary_unary", CONTROL, rpc)(
            MESSAGES[f"{rpc}Request"](**fields), timeout=SECONDS, wait_for_ready=True
        )

    def drain(self, **fields: Any) -> Any:
        """The progress of a drain."""
        return self._method("unary_stream", CONTROL, "Drain")(MESSAGES["DrainRequest"](**fields), timeout=SECONDS)

    def generate(
        self,
        request_id: str,
        tokens: int | list[int],
        max_tokens: int,
        context_only: bool = False,
        session: Any = None,
        **fields: Any,
    ) -> Any:
        """The answers to one request; `tokens` are the prompt, or how long one of zeros is."""
        ids = [0] * tokens if isinstance(tokens, int) else tokens
        extra = {"detokenize": False, **({"request_type": "context_only"} if context_only else {})}
        message = MESSAGES["GenerateRequest"](
            request_id=request_id,
            token_ids=MESSAGES["TokenIds"](ids=ids),
            stopping=MESSAGES["StoppingOptions"](max_tokens=max_tokens),
            extra=json_format.ParseDict(extra, struct_pb2.Struct()),
            **({"kv": MESSAGES["KvOptions"](session=session)} if session is not None else {}),
            **fields,
        )
        return self._method("unary_stream", INFERENCE, "Generate")(message, timeout=SECONDS, wait_for_ready=True)

    def _method(self, kind: str, service: str, rpc: str) -> Any:
        return getattr(self._channel, kind)(
            f"/{service}/{rpc}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=MESSAGES[f"{rpc}Response"].FromString,
        )


def token_count(answers: Iterable[Any]) -> int:
    """How many tokens the answers carry."""
    return sum(len(answer.token.tokens) for answer in answers)
