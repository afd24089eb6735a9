"""What a kind of benchmark is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from srtctl.recipe.benchmark import Benchmark


@dataclass(frozen=True, slots=True)
class Load:
    """What is measured: the engine behind the endpoint, the name clients ask for, and where its tokenizer lies."""

    engine: str
    model: str
    tokenizer: str


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of benchmark on one engine.

    `needs` must be in the recipe, `uses` may be. `lost` are settings that v1's own tool has and the public one lacks, each
    with its reason. `refused` is why it cannot be run on this engine at all.
    """

    what: str
    script: Callable[[Benchmark, Load], str]
    needs: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    lost: Mapping[str, str] = field(default_factory=dict)
    refused: str = ""
