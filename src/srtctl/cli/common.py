"""What several verbs share: the options of a recipe, and recipe to plan with its diagnostics printed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from srtctl.cluster.load import LoadedCluster
    from srtctl.diagnostics import Diagnostic
    from srtctl.plan.model import Plan
    from srtctl.plan.variants import PlannedVariant
    from srtctl.recipe.model import Recipe

RecipeArgument = Annotated[
    Path,
    typer.Argument(
        help="The recipe, a YAML file, or `FILE:VARIANT`; or a plan saved with `srtctl plan RECIPE -o json`, which is "
        "taken as it stands.",
        metavar="RECIPE",
        show_default=False,
    ),
]
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


class DiagnosticFormat(StrEnum):
    """Values of --format; `github` is annotations of a GitHub workflow."""

    text = "text"
    json = "json"
    github = "github"


FormatOption = Annotated[
    DiagnosticFormat, typer.Option("--format", help="How to print what is wrong; `github` annotates a workflow.")
]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A recipe that can run, on a cluster profile. `recipe` is None for a saved plan."""

    plan: Plan
    cluster: LoadedCluster
    recipe: Recipe | None
    recipe_path: Path

    @property
    def recipe_yaml(self) -> str:
        """What a bundle keeps as recipe.yaml."""
        if self.recipe is None:
            from srtctl.cli.saved import NO_RECIPE

            return NO_RECIPE
        from srtctl.recipe.dump import dump_resolved

        return dump_resolved(self.recipe)


def load_plan(
    recipe: Path,
    cluster: str | None = None,
    sets: list[str] | None = None,
    unset: list[str] | None = None,
    allow_unsupported: bool = False,
    *,
    quiet: bool = False,
    fmt: DiagnosticFormat = DiagnosticFormat.text,
    report: Callable[[list[Diagnostic]], None] | None = None,
) -> Loaded:
    """The plan of `recipe`, or the one saved there; diagnostics go to stderr as `fmt` (`quiet` leaves warnings out).

    Of the cluster profile a saved plan takes nothing: all that the profile decided is in it. Exits 2 when there is an
    error, or several variants; `report` is called with the diagnostics first.
    """
    profile, planned = load_plans(recipe, cluster, sets, unset, allow_unsupported)
    return one_plan(recipe, profile, planned, quiet=quiet, fmt=fmt, report=report)


def load_plans(
    recipe: Path,
    cluster: str | None = None,
    sets: list[str] | None = None,
    unset: list[str] | None = None,
    allow_unsupported: bool = False,
) -> tuple[LoadedCluster, list[PlannedVariant]]:
    """The profile, and every recipe that `recipe` means, planned or not; at least one. Nothing is printed."""
    import os

    from srtctl.cli.saved import refuse_changes, saved_text
    from srtctl.cluster.load import find_profile, load_cluster
    from srtctl.plan.variants import PlannedVariant, plan_variants

    profile = load_cluster(find_profile(cluster, Path.cwd(), os.environ))
    if (saved := saved_text(recipe)) is not None:
        refuse_changes(recipe, {"--set": sets, "--unset": unset, "--allow-unsupported": allow_unsupported})
        plan, found = _read_saved(saved, str(recipe), profile)
        return profile, [PlannedVariant("", plan, None, tuple(found))]
    return profile, plan_variants(
        recipe, profile, overrides=sets or (), unset=unset or (), allow_unsupported=allow_unsupported
    )


def one_plan(
    recipe: Path,
    profile: LoadedCluster,
    planned: list[PlannedVariant],
    *,
    quiet: bool = False,
    fmt: DiagnosticFormat = DiagnosticFormat.text,
    report: Callable[[list[Diagnostic]], None] | None = None,
) -> Loaded:
    """The only one of `planned`, with its diagnostics printed; see `load_plan`."""
    from srtctl.cli.diagnostics import in_order, print_diagnostics
    from srtctl.recipe.load import several

    only = planned[0]
    plan = only.plan if len(planned) == 1 else None
    found = list(only.diagnostics) if len(planned) == 1 else [several(recipe, [item.name for item in planned])]
    shown = [d for d in found if not (quiet and d.severity == "warning")]
    if shown:
        print_diagnostics(shown, fmt=fmt.value)
    if plan is None:
        if report:
            report(in_order(found))
        raise typer.Exit(USAGE_ERROR)
    return Loaded(plan, profile, only.recipe, recipe)


def _read_saved(text: str, file: str, profile: LoadedCluster) -> tuple[Plan | None, list[Diagnostic]]:
    """The saved plan with the warnings it was made with, or None with the reasons; a broken profile is one."""
    from srtctl.cli.saved import reminders
    from srtctl.diagnostics import DiagnosticError
    from srtctl.plan.serial import read_plan

    errors = [d for d in profile.diagnostics if d.severity == "error"]
    try:
        plan = read_plan(text, file)
    except DiagnosticError as error:
        return None, errors + error.diagnostics
    return (None, errors) if errors else (plan, reminders(plan))
