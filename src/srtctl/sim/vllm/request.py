"""A request as the engine sees it, and what it yields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any


class Finish(IntEnum):
    """Why a request ended, with the numbers of the wire."""

    length = 1
    aborted = 3


@dataclass(frozen=True)
class Request:
    """A request. Without `dp_rank` the engine chooses one; `transfer` are its kv_transfer_params (empty: none)."""

    rid: str
    tokens: tuple[int, ...]
    dp_rank: int | None
    max_new_tokens: int | None
    transfer: Mapping[str, Any]


@dataclass(frozen=True)
class Chunk:
    """Newly generated tokens with their text. The last chunk, and no other, says why and how the request ended.

    `transfer` are the kv_transfer_params for the decode engine, on the last chunk of a prefill engine.
    """

    tokens: tuple[int, ...]
    text: str
    finish: Finish | None = None
    completion_tokens: int = 0
    transfer: Mapping[str, Any] | None = None
