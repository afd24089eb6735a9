"""What several tests share: recipes to plans without a command line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from srtctl.cluster.load import LoadedCluster
from srtctl.cluster.model import ClusterProfile
from srtctl.plan.build import BuildResult, build_plan
from srtctl.plan.model import Plan
from srtctl.recipe.dump import dump_resolved
from srtctl.recipe.load import load_recipe
from srtctl.render.bundle import bundle_files

REPOSITORY = Path(__file__).parents[1]
EXAMPLES = sorted((REPOSITORY / "examples").rglob("*.yaml"))

#: The public recipes lie beside the checkout, not in it.
CORPUS = Path(os.environ.get("SRTCTL_CORPUS", REPOSITORY.parent / "shared" / "corpus"))
needs_corpus = pytest.mark.skipif(
    not CORPUS.is_dir(), reason=f"the corpus of public recipes is not at {CORPUS}; SRTCTL_CORPUS names another place"
)


def example_id(path: Path) -> str:
    return path.stem


def build(recipe: Path, *, overrides: tuple[str, ...] = (), unset: tuple[str, ...] = (), **profile: Any) -> BuildResult:
    """The plan of a recipe file, on a profile made of keyword arguments (none: no profile)."""
    cluster = LoadedCluster(ClusterProfile(**profile), Path("srtslurm.yaml") if profile else None, [])
    return build_plan(load_recipe(recipe, overrides=overrides, unset=unset), cluster)


def plan_of(recipe: Path, **options: Any) -> Plan:
    """As `build`, for a recipe that must be good."""
    result = build(recipe, **options)
    assert result.plan is not None, [d.message for d in result.diagnostics]
    return result.plan


def bundle_of(example: Path, run_dir: str = "/shared/runs/example-1") -> dict[str, str]:
    """The bundle of an example without any cluster profile, named as from the repository's root."""
    recipe = load_recipe(example.relative_to(Path.cwd()) if example.is_relative_to(Path.cwd()) else example)
    result = build_plan(recipe, LoadedCluster(ClusterProfile(), None, []))
    assert result.plan is not None, [d.message for d in result.diagnostics]
    assert recipe.recipe is not None
    return bundle_files(result.plan, run_dir, dump_resolved(recipe.recipe))
