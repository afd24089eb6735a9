"""What several verbs share: the options of a recipe, and recipe to plan with its diagnostics printed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from srtctl.cluster.load import LoadedCluster
    from srtctl.plan.model import Plan
    from srtctl.recipe.model import Recipe

RecipeArgument = Annotated[Path, typer.Argument(help="The recipe, a YAML file.", metavar="RECIPE", show_default=False)]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster", help="Cluster profile: a file, or `none`.", metavar="FILE|none", show_default="found by itself"
    ),
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="Override one value of the recipe.", metavar="PATH=VALUE")
]
UnsetOption = Annotated[
    list[str] | None, typer.Option("--unset", help="Remove one value of the recipe.", metavar="PATH")
]
AllowUnsupportedOption = Annotated[
    bool, typer.Option("--allow-unsupported", help="Turn what is known but not built yet into warnings.")
]

USAGE_ERROR = 2


@dataclass(frozen=True, slots=True)
class Loaded:
    """A recipe that can run, on a cluster profile."""

    plan: Plan
    cluster: LoadedCluster
    recipe: Recipe
    recipe_path: Path


def load_plan(
    recipe: Path,
    cluster: str | None = None,
    sets: list[str] | None = None,
    unset: list[str] | None = None,
    allow_unsupported: bool = False,
    *,
    quiet: bool = False,
) -> Loaded:
    """The plan of `recipe`; diagnostics go to stderr (`quiet` leaves warnings out). Exits 2 when there is an error."""
    import os

    from srtctl.cli.diagnostics import print_diagnostics
    from srtctl.cluster.load import find_profile, load_cluster
    from srtctl.diagnostics import DiagnosticError
    from srtctl.plan.build import build_plan
    from srtctl.recipe.load import load_recipe

    try:
        profile = load_cluster(find_profile(cluster, Path.cwd(), os.environ))
    except DiagnosticError as error:
        print_diagnostics(error.diagnostics)
        raise typer.Exit(USAGE_ERROR) from None
    loaded = load_recipe(recipe, overrides=sets or (), unset=unset or (), allow_unsupported=allow_unsupported)
    result = build_plan(loaded, profile)
    shown = [d for d in result.diagnostics if not (quiet and d.severity == "warning")]
    if shown:
        print_diagnostics(shown)
    if result.plan is None or loaded.recipe is None:
        raise typer.Exit(USAGE_ERROR)
    return Loaded(result.plan, profile, loaded.recipe, recipe)
