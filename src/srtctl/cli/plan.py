"""`srtctl plan`: what would run, and where."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from srtctl.cli.common import AllowUnsupportedOption, ClusterOption, RecipeArgument, SetOption, UnsetOption, load_plan


class PlanFormat(StrEnum):
    text = "text"
    json = "json"
    yaml = "yaml"


def command(
    recipe: RecipeArgument,
    output: Annotated[PlanFormat, typer.Option("--output", "-o", help="How to print the plan.")] = PlanFormat.text,
    cluster: ClusterOption = None,
    sets: SetOption = None,
    unset: UnsetOption = None,
    allow_unsupported: AllowUnsupportedOption = False,
) -> None:
    """Show what a recipe would run: nodes, GPUs, ports, commands. Submits nothing and needs no Slurm."""
    loaded = load_plan(recipe, cluster, sets, unset, allow_unsupported)
    if output is PlanFormat.json:
        from srtctl.plan.serial import plan_json

        typer.echo(plan_json(loaded.plan), nl=False)
    elif output is PlanFormat.yaml:
        import yaml

        from srtctl.plan.serial import plan_dict

        typer.echo(yaml.safe_dump(plan_dict(loaded.plan), sort_keys=False, width=1000), nl=False)
    else:
        from srtctl.cli.terminal import color_enabled
        from srtctl.plan.text import plan_text

        typer.echo(plan_text(loaded.plan, color=color_enabled()), nl=False)
