"""The public recipes, each variant with what its author wrote (v1, unconverted) and what it became."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from srtctl.cluster.load import load_cluster
from srtctl.plan.model import Plan, Process, Worker
from srtctl.plan.variants import plan_variants
from srtctl.reading.document import read_yaml
from srtctl.recipe.model import Recipe
from srtctl.recipe.variants import expand
from tests.support import CORPUS

#: v1's words for a role in `backend.<engine>_config` and in `resources`.
MODES = {"prefill": "prefill", "decode": "decode", "agg": "aggregated"}


@dataclass(frozen=True)
class Case:
    """One variant that is ok with --allow-unsupported."""

    name: str
    written: Mapping[str, Any]
    recipe: Recipe
    plan: Plan

    @property
    def engine(self) -> str:
        return str(self.table("backend").get("type") or "sglang")

    def table(self, *path: str) -> Mapping[str, Any]:
        """What the author wrote under `path`, empty where that is nothing."""
        found: Any = self.written
        for key in path:
            found = found.get(key) if isinstance(found, Mapping) else None
        return found if isinstance(found, Mapping) else {}

    def args(self, role: str) -> Mapping[str, Any]:
        """The engine flags of a role, as written."""
        return self.table("backend", f"{self.engine}_config", MODES[role])

    def processes(self) -> list[tuple[Worker, Process]]:
        return [(worker, process) for worker in self.plan.workers for process in worker.processes]


@cache
def files() -> tuple[Path, ...]:
    return tuple(sorted(CORPUS.rglob("*.yaml")))


@cache
def cases() -> tuple[Case, ...]:
    """Every ok variant of every file."""
    profile = load_cluster(None)
    found = []
    for path in files():
        written = expand(read_yaml(path))
        for raw, planned in zip(written, plan_variants(path, profile, allow_unsupported=True), strict=True):
            if planned.plan and planned.recipe:
                name = f"{path.relative_to(CORPUS)}{f':{planned.name}' if planned.name else ''}"
                found.append(Case(name, raw.document.data, planned.recipe, planned.plan))
    return tuple(found)
