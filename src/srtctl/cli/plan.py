"""`srtctl plan`: what would run, and where."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from srtctl.cli.common import (
    USAGE_ERROR,
    AllowUnsupportedOption,
    ClusterOption,
    DiagnosticFormat,
    FormatOption,
    RecipeArgument,
    SetOption,
    UnsetOption,
    load_plan,
    load_plans,
    one_plan,
)
from srtctl.cli.saved import saved_text

if TYPE_CHECKING:
    from srtctl.diagnostics import Diagnostic
    from srtctl.plan.model import Plan
    from srtctl.plan.variants import PlannedVariant

#: Exit code of `--diff` when the plans differ.
DIFFERENT = 2


class PlanFormat(StrEnum):
    text = "text"
    json = "json"
    yaml = "yaml"


def command(
    recipe: RecipeArgument,
    output: Annotated[PlanFormat, typer.Option("--output", "-o", help="How to print the plan.")] = PlanFormat.text,
    fmt: FormatOption = DiagnosticFormat.text,
    cluster: ClusterOption = None,
    sets: SetOption = None,
    unset: UnsetOption = None,
    allow_unsupported: AllowUnsupportedOption = False,
    diff: Annotated[
        Path | None,
        typer.Option(
            help="Show instead what changes from OTHER (-), a recipe or saved plan, to RECIPE (+). "
            "Exits 0 when both run the same, 2 when not.",
            metavar="OTHER",
        ),
    ] = None,
) -> None:
    """Show what a recipe would run: nodes, GPUs, ports, commands. Submits nothing and needs no Slurm.

    With -o json or yaml, a recipe that cannot run prints {"diagnostics": [...]} instead, and exits 2. Of a file with
    several variants all are listed, with -o json or yaml as {"plans": [{"variant": ..., "plan": ...}]}.
    """

    def report(found: list[Diagnostic]) -> None:
        if output is not PlanFormat.text:
            _print_data({"diagnostics": [item.as_dict() for item in found]}, output)

    profile, planned = load_plans(recipe, cluster, sets, unset, allow_unsupported)
    if len(planned) > 1 and diff is None:
        _print_variants(recipe, planned, output)
    loaded = one_plan(recipe, profile, planned, fmt=fmt, report=report)
    if diff is not None:
        lenient = allow_unsupported and saved_text(diff) is None
        other = load_plan(diff, cluster, allow_unsupported=lenient, quiet=True, fmt=fmt, report=report)
        changed = [*(f"--set {item}" for item in sets or ()), *(f"--unset {item}" for item in unset or ())]
        _print_diff(other.plan, str(diff), loaded.plan, " ".join([str(recipe), *changed]), output)
    if output is PlanFormat.text:
        from srtctl.cli.terminal import color_enabled
        from srtctl.plan.text import plan_text

        typer.echo(plan_text(loaded.plan, color=color_enabled()), nl=False)
    elif output is PlanFormat.json:
        from srtctl.plan.serial import plan_json

        typer.echo(plan_json(loaded.plan), nl=False)
    else:
        from srtctl.plan.serial import plan_dict

        _print_data(plan_dict(loaded.plan), output)


def _print_variants(recipe: Path, planned: list[PlannedVariant], output: PlanFormat) -> NoReturn:
    """Print what the file holds; exits 2 when one of its recipes cannot run."""
    from srtctl.cli.variants import variant_lines, variants_data

    if output is PlanFormat.text:
        typer.echo("\n".join(variant_lines(recipe, planned, "plan")))
    else:
        _print_data(variants_data(planned), output)
    raise typer.Exit(0 if all(item.plan for item in planned) else USAGE_ERROR)


def _print_diff(old: Plan, old_name: str, new: Plan, new_name: str, output: PlanFormat) -> NoReturn:
    """Print what changes; exits 2 when something does."""
    from srtctl.plan.diff import diff_plans

    diff = replace(diff_plans(old, new), old=old_name, new=new_name)
    if output is PlanFormat.text:
        from srtctl.cli.terminal import color_enabled
        from srtctl.plan.difftext import diff_text

        typer.echo(diff_text(diff, color=color_enabled()), nl=False)
    else:
        _print_data(diff.as_dict(), output)
    raise typer.Exit(0 if diff.equal else DIFFERENT)


def _print_data(data: dict[str, Any], output: PlanFormat) -> None:
    if output is PlanFormat.json:
        from srtctl.plan.serial import data_json

        typer.echo(data_json(data), nl=False)
    else:
        import yaml

        typer.echo(yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=1000), nl=False)
