"""Where something listens."""

from __future__ import annotations

from dataclasses import dataclass

ANY_HOST = ("*", "0.0.0.0", "[::]")


@dataclass(frozen=True)
class Address:
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"
