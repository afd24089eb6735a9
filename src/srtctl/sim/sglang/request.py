"""A request as the engine sees it, and what it yields."""

from __future__ import annotations

from dataclasses import dataclass

from srtctl.sim.address import Address


@dataclass(frozen=True)
class Bootstrap:
    """Where both legs of a disaggregated request meet: the prefill engine's bootstrap server, and the room there."""

    address: Address
    room: int


@dataclass(frozen=True)
class Request:
    """A request. Without `dp_rank` the engine chooses one; without `bootstrap` it is for an aggregated engine."""

    rid: str
    tokens: tuple[int, ...]
    dp_rank: int | None = None
    max_new_tokens: int | None = None
    bootstrap: Bootstrap | None = None


@dataclass(frozen=True)
class Abort:
    """Why a request ended early; `status_code` as in HTTP, None when the client asked for it."""

    message: str
    status_code: int | None = None


@dataclass(frozen=True)
class Chunk:
    """Newly generated tokens, and what is known about the request so far. `abort` only on a last chunk."""

    tokens: tuple[int, ...]
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    finished: bool = False
    abort: Abort | None = None
