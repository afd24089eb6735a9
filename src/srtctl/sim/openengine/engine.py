"""What an engine is to its OpenEngine server: a few facts, and requests. Each simulated engine has one adapter."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from srtctl.sim.address import ANY_HOST
from srtctl.sim.errors import GroupError, InternalError, RequestError, TransferError, UnavailableError

Role = Literal["agg", "prefill", "decode"]
Finish = Literal["stop", "length", "cancelled"]


@dataclass(frozen=True)
class Listen:
    """Where an engine serves OpenEngine, and the address under which others reach its node."""

    host: str
    port: int
    advertised: str


def listen(host: str | None, port: int | None, advertised: str | None) -> Listen | None:
    """From `--openengine-host`, `--openengine-port` and `--openengine-advertise-host`; without a port: nowhere."""
    if port is None:
        return None
    bound = host or "127.0.0.1"
    return Listen(bound, port, advertised or ("127.0.0.1" if bound in ANY_HOST else bound))


@dataclass(frozen=True)
class Handoff:
    """How KV caches leave or reach the engine: the transfer backend, and the profile of the session's attributes.

    Sessions of another profile cannot be read. `host` and `port` are where a prefill engine offers them.
    """

    backend: str
    profile: str
    protocol: str
    host: str = ""
    port: int = 0


@dataclass(frozen=True)
class EventSource:
    """Where the KV events of a DP rank are published."""

    dp_rank: int
    host: str
    port: int
    topic: str
    transport: str = "zmq"


@dataclass(frozen=True)
class Facts:
    """What discovery tells of an engine."""

    engine: str
    version: str
    role: Role
    model_path: str
    served_name: str
    context_length: int
    aliases: tuple[str, ...] = ()
    tp: int = 1
    pp: int = 1
    dp: int = 1
    start_rank: int = 0
    block_size: int | None = None
    handoff: Handoff | None = None
    sources: tuple[EventSource, ...] = ()
    lora: bool = False
    multimodal: bool = False


@dataclass(frozen=True)
class Session:
    """A KV cache that waits to be fetched. `attributes` are the engine's own; nobody in between reads them."""

    session_id: str
    dp_rank: int
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Work:
    """A request. `context_only`: compute the prompt and hand it over. `session`: fetch the prompt, then generate."""

    request_id: str
    tokens: tuple[int, ...]
    max_tokens: int | None = None
    dp_rank: int | None = None
    context_only: bool = False
    session: Session | None = None


@dataclass(frozen=True)
class Step:
    """Newly generated tokens, and what is known so far; the last one of a request has `finish`."""

    tokens: tuple[int, ...]
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    finish: Finish | None = None


@dataclass(frozen=True)
class Ready:
    """The last thing that a `context_only` request yields: its KV cache can be fetched."""

    session: Session
    prompt_tokens: int


class RejectedError(Exception):
    """The engine does not take the request; `status` is the gRPC status code's name."""

    def __init__(self, message: str, status: str = "INVALID_ARGUMENT") -> None:
        super().__init__(message)
        self.status = status


class FailedError(Exception):
    """An accepted request failed; `code` is one of OpenEngine's error codes, without its prefix."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """The simulators' own errors, raised inside, as those of OpenEngine."""
    try:
        yield
    except RequestError as error:
        raise RejectedError(str(error)) from None
    except UnavailableError as error:
        raise RejectedError(str(error), "UNAVAILABLE") from None
    except InternalError as error:
        raise FailedError("INTERNAL", str(error)) from None
    except GroupError as error:
        raise FailedError("INTERNAL", f"a part of the engine is gone: {error}") from None
    except TransferError as error:
        raise FailedError("KV_TRANSFER_FAILED", str(error)) from None


class Engine(Protocol):
    """What the server asks of an engine. Thread-safe."""

    facts: Facts

    def generate(self, work: Work) -> Iterator[Step | Ready]:
        """Run a request. Raises RejectedError before its first yield, FailedError later or at once."""
        ...

    def abort(self, request_id: str) -> None:
        """Stop a running request; unknown ones are ignored."""
        ...

    def open_sessions(self) -> int:
        """How many KV caches wait to be fetched."""
        ...
