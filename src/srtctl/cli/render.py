"""`srtctl render`: the files that would be submitted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from srtctl.cli.common import (
    USAGE_ERROR,
    AllowUnsupportedOption,
    ClusterOption,
    RecipeArgument,
    SetOption,
    UnsetOption,
    load_plan,
)


def command(
    recipe: RecipeArgument,
    to: Annotated[Path, typer.Option("--to", help="Folder to write the bundle to.", metavar="DIR", show_default=False)],
    run_dir: Annotated[
        str | None,
        typer.Option(help="Absolute folder the bundle will lie in on the cluster.", metavar="DIR", show_default="--to"),
    ] = None,
    cluster: ClusterOption = None,
    sets: SetOption = None,
    unset: UnsetOption = None,
    allow_unsupported: AllowUnsupportedOption = False,
) -> None:
    """Write the bundle of a recipe to a folder: readable scripts that `sbatch DIR/job.sbatch` runs as they are."""
    loaded = load_plan(recipe, cluster, sets, unset, allow_unsupported)
    from srtctl.render.bundle import write_bundle

    if run_dir is not None and not run_dir.startswith("/"):
        typer.echo(f"error: --run-dir must be an absolute path, not {run_dir}", err=True)
        raise typer.Exit(USAGE_ERROR)
    if to.exists() and not to.is_dir():
        typer.echo(f"error: {to} is a file; --to names the folder to write", err=True)
        raise typer.Exit(USAGE_ERROR)
    write_bundle(loaded.plan, to, loaded.recipe_yaml, run_dir=run_dir)
    typer.echo(f"wrote {to}\nnext: sbatch {(Path(run_dir) if run_dir else to.resolve()) / 'job.sbatch'}", err=True)
