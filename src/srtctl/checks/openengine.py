"""What an engine says of itself over OpenEngine (`openengine.v1`): GetServerInfo, GetModelInfo, GetKvEventSources.

Messages are read by hand, so that no generated code is needed; field numbers are those of the public schema
(ai-dynamo/openengine, proto/openengine/v1).
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from srtctl.checks.net import NetError

_CONTROL = "/openengine.v1.Control"
_ROLES = {1: "agg", 2: "prefill", 3: "decode"}
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

Fields = dict[int, list[int | bytes]]


class UnaskableError(Exception):
    """Nobody can tell: this Python has no grpc, or the server has no such method."""


@dataclass(frozen=True)
class Source:
    """Where the KV events of a rank are published."""

    dp_rank: int
    transport: str
    port: int


@dataclass(frozen=True)
class Said:
    """One engine's own word. `lora` and `multimodal` are None where it does not say."""

    engine: str
    version: str
    role: str
    revision: int
    minimum_client: int
    names: tuple[str, ...]
    handoff: bool
    backend: str
    profile: str
    lora: bool | None
    multimodal: bool | None
    sources: tuple[Source, ...] = ()

    def facts(self) -> str:
        """`tensorrt_llm 1.3.0: role agg, schema revision 1, model /models/m`."""
        name = self.names[0] if self.names else "unnamed"
        return f"{self.engine} {self.version}: role {self.role}, schema revision {self.revision}, model {name}"


def ask(host: str, port: int, timeout: float) -> Said:
    """Ask the engine that listens there. Raises UnaskableError, or NetError naming the address."""
    try:
        grpc = importlib.import_module("grpc")
    except ImportError:
        raise UnaskableError("this Python has no module 'grpc'") from None
    with grpc.insecure_channel(f"{host}:{port}", options=[("grpc.enable_http_proxy", 0)]) as channel:

        def call(method: str, request: bytes = b"") -> Fields:
            stub = channel.unary_unary(f"{_CONTROL}/{method}", request_serializer=bytes, response_deserializer=bytes)
            try:
                return fields(stub(request, timeout=timeout))
            except grpc.RpcError as error:
                code = error.code().name
                if code == "UNIMPLEMENTED":
                    raise UnaskableError(f"the engine's OpenEngine server has no {method}") from None
                raise NetError(f"{host}:{port} {method}: {code}: {error.details()}") from None
            except (ValueError, IndexError) as error:
                raise NetError(f"{host}:{port} {method}: not what OpenEngine answers: {error}") from None

        server = call("GetServerInfo")
        models = _texts(server, 5)
        model = call("GetModelInfo", _text_field(1, models[0]) if models else b"")
        try:
            sources = call("GetKvEventSources")
        except UnaskableError:
            sources = {}
        return _said(server, model, sources)


def fields(message: bytes) -> Fields:
    """The fields of a message by number: numbers as they are, everything else as bytes. Raises ValueError, IndexError."""
    found: Fields = {}
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        value: int | bytes
        if kind == _VARINT:
            value, at = _varint(message, at)
        else:
            size = {_FIXED64: 8, _FIXED32: 4}.get(kind)
            if kind == _BYTES:
                size, at = _varint(message, at)
            if size is None or at + size > len(message):
                raise ValueError(f"field {key >> 3} is cut off or of an unknown kind")
            value, at = message[at : at + size], at + size
        found.setdefault(key >> 3, []).append(value)
    return found


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return value, at


def _text_field(number: int, text: str) -> bytes:
    data, size = text.encode(), b""
    left = len(data)
    while left >= 0x80:
        size, left = size + bytes([left & 0x7F | 0x80]), left >> 7
    return bytes([number << 3 | _BYTES]) + size + bytes([left]) + data


def _said(server: Fields, model: Fields, sources: Fields) -> Said:
    connector = _message(server, 7)
    return Said(
        engine=_text(server, 1),
        version=_text(server, 2),
        role=_ROLES.get(_number(server, 3) or 0, "unspecified"),
        revision=_number(server, 8) or 0,
        minimum_client=_number(server, 9) or 0,
        names=tuple(dict.fromkeys(name for name in (*_texts(model, 2), *_texts(model, 3), *_texts(model, 1)) if name)),
        handoff=bool(_number(connector, 1)),
        backend=_text(connector, 2),
        profile=_text(connector, 10),
        lora=_flag(model, 23),
        multimodal=_flag(model, 24),
        sources=tuple(_sources(sources)),
    )


def _sources(answer: Fields) -> Iterator[Source]:
    for data in answer.get(1, []):
        if isinstance(data, bytes):
            source = fields(data)
            yield Source(_number(source, 5) or 0, _text(source, 1), _number(_message(source, 2), 2) or 0)


def _number(message: Fields, number: int) -> int | None:
    found = [value for value in message.get(number, []) if isinstance(value, int)]
    return found[-1] if found else None


def _flag(message: Fields, number: int) -> bool | None:
    value = _number(message, number)
    return None if value is None else bool(value)


def _texts(message: Fields, number: int) -> Sequence[str]:
    return [value.decode(errors="replace") for value in message.get(number, []) if isinstance(value, bytes)]


def _text(message: Fields, number: int) -> str:
    return next(reversed(_texts(message, number)), "")


def _message(message: Fields, number: int) -> Fields:
    found = [value for value in message.get(number, []) if isinstance(value, bytes)]
    return fields(found[-1]) if found else {}
