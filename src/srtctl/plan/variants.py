"""Every recipe of a file, planned."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from srtctl.cluster.load import LoadedCluster
from srtctl.diagnostics import Diagnostic
from srtctl.plan.build import build_plan
from srtctl.plan.model import Plan
from srtctl.recipe.load import load_variants
from srtctl.recipe.model import Recipe


@dataclass(frozen=True, slots=True)
class PlannedVariant:
    """One recipe of a file; `name` is "" where the file holds one. `plan` is None where `diagnostics` holds an error."""

    name: str
    plan: Plan | None
    recipe: Recipe | None
    diagnostics: tuple[Diagnostic, ...]

    @property
    def errors(self) -> list[Diagnostic]:
        """Why there is no plan."""
        return [found for found in self.diagnostics if found.severity == "error"]


def plan_variants(
    path: Path,
    cluster: LoadedCluster,
    *,
    overrides: Sequence[str] = (),
    unset: Sequence[str] = (),
    allow_unsupported: bool = False,
) -> list[PlannedVariant]:
    """The recipes that `path`, a file with or without a selector, means; at least one. Arguments as in `load_recipe`."""
    found = load_variants(path, overrides=overrides, unset=unset, allow_unsupported=allow_unsupported)
    results = [(item, build_plan(item.loaded, cluster)) for item in found]
    return [PlannedVariant(i.name, r.plan, i.loaded.recipe, r.diagnostics) for i, r in results]


def folder_names(names: Iterable[str]) -> list[str]:
    """A folder for each variant, in characters that need no quotes: `zip_override_x[0]` is `zip_override_x_0`."""
    folders: list[str] = []
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9._=-]+", "_", name).strip("_.") or "variant"
        same = sum(re.fullmatch(rf"{re.escape(plain)}(\.[0-9]+)?", other) is not None for other in folders)
        folders.append(f"{plain}.{same + 1}" if same else plain)
    return folders
