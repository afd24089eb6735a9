"""What an engine says of itself over OpenEngine (`openengine.v1`): GetServerInfo, GetModelInfo, GetKvEventSources.

Messages are read by hand, so that no generated code is needed; field numbers are those of the public schema
(ai-dynamo/openengine, proto/openengine/v1).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from srtctl.checks import protobuf
from srtctl.checks.grpc_call import UnimplementedError
from srtctl.checks.grpc_call import ask as call
from srtctl.checks.net import NetError

_CONTROL = "/openengine.v1.Control"
_ROLES = {1: "agg", 2: "prefill", 3: "decode"}

Fields = dict[int, list["int | bytes"]]


@dataclass(frozen=True)
class Source:
    """Where the KV events of a rank are published."""

    dp_rank: int
    transport: str
    port: int


@dataclass(frozen=True)
class Server:
    """What GetServerInfo answers."""

    engine: str
    version: str
    role: str
    revision: int
    minimum_client: int
    handoff: bool
    backend: str
    profile: str


@dataclass(frozen=True)
class Said:
    """One engine process's own word. `server` is None where it has no GetServerInfo, `lora` and `multimodal` where it does
    not say."""

    server: Server | None
    names: tuple[str, ...]
    lora: bool | None
    multimodal: bool | None
    sources: tuple[Source, ...] = ()

    def facts(self) -> str:
        """`tensorrt_llm 1.3.0: role agg, schema revision 1, model /models/m`."""
        name = self.names[0] if self.names else "unnamed"
        if self.server is None:
            return f"OpenEngine without GetServerInfo: model {name}"
        said = self.server
        return f"{said.engine} {said.version}: role {said.role}, schema revision {said.revision}, model {name}"


def ask(host: str, port: int, timeout: float, model: str = "") -> Said:
    """Ask the engine that listens there; of the model it names, else of `model`.

    Raises UnaskableError where it has not even GetModelInfo, or NetError naming the address.
    """

    def fields(method: str, request: bytes = b"") -> Fields:
        answer = call(host, port, f"{_CONTROL}/{method}", timeout, request)
        try:
            return _fields(answer)
        except ValueError as error:
            raise NetError(f"{host}:{port} {method}: not what OpenEngine answers: {error}") from None

    server, names = None, [model]
    with contextlib.suppress(UnimplementedError):
        info = fields("GetServerInfo")
        server, names = _server(info), [*_texts(info, 5)] or names
    about = fields("GetModelInfo", _text_field(1, names[0]) if names[0] else b"")
    sources: tuple[Source, ...] = ()
    with contextlib.suppress(UnimplementedError):
        sources = tuple(_sources(fields("GetKvEventSources")))
    return Said(
        server=server,
        names=tuple(dict.fromkeys(name for name in (*_texts(about, 2), *_texts(about, 3), *_texts(about, 1)) if name)),
        lora=_flag(about, 23),
        multimodal=_flag(about, 24),
        sources=sources,
    )


def _fields(message: bytes) -> Fields:
    """The values of each field of a message. Raises ValueError."""
    found: Fields = {}
    for number, value in protobuf.fields(message):
        found.setdefault(number, []).append(value)
    return found


def _text_field(number: int, text: str) -> bytes:
    data, size = text.encode(), b""
    left = len(data)
    while left >= 0x80:
        size, left = size + bytes([left & 0x7F | 0x80]), left >> 7
    return bytes([number << 3 | 2]) + size + bytes([left]) + data


def _server(info: Fields) -> Server:
    connector = _message(info, 7)
    return Server(
        engine=_text(info, 1),
        version=_text(info, 2),
        role=_ROLES.get(_number(info, 3) or 0, "unspecified"),
        revision=_number(info, 8) or 0,
        minimum_client=_number(info, 9) or 0,
        handoff=bool(_number(connector, 1)),
        backend=_text(connector, 2),
        profile=_text(connector, 10),
    )


def _sources(answer: Fields) -> Iterator[Source]:
    for data in answer.get(1, []):
        if isinstance(data, bytes):
            source = _fields(data)
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
    return _fields(found[-1]) if found else {}
