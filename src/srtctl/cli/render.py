"""`srtctl render`: the files that would be submitted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from srtctl.cli.common import (
    AllowUnsupportedOption,
    ClusterOption,
    RecipeArgument,
    SetOption,
    UnsetOption,
    load_plans,
    one_plan,
)
from srtctl.cli.exits import USAGE, fail, say


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
    """Write the bundle of a recipe to a folder: readable scripts that `sbatch DIR/job.sbatch` runs as they are.

    Of a file with several variants each gets a folder of its own below DIR.
    """
    if run_dir is not None and not run_dir.startswith("/"):
        fail(f"--run-dir must be an absolute path, not {run_dir}", code=USAGE)
    if to.exists() and not to.is_dir():
        fail(f"{to} is a file; --to names the folder to write", code=USAGE)
    profile, planned = load_plans(recipe, cluster, sets, unset, allow_unsupported)
    from srtctl.plan.variants import folder_names
    from srtctl.render.bundle import write_bundle

    # All are planned, and their diagnostics printed, before anything is written.
    loaded = [one_plan(recipe, profile, [item]) for item in planned]
    for item, folder in zip(loaded, folder_names(v.name for v in planned) if len(planned) > 1 else [""], strict=True):
        bundle, lies = to / folder, f"{run_dir}/{folder}".rstrip("/") if run_dir else None
        write_bundle(item.plan, bundle, item.recipe_yaml, run_dir=lies)
        say(f"wrote {bundle}\nnext: sbatch {(Path(lies) if lies else bundle.resolve()) / 'job.sbatch'}")
