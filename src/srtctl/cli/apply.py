"""`srtctl apply`: submit a recipe, and on request wait until it serves, or until its benchmark ended."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from srtctl.cli.common import (
    AllowUnsupportedOption,
    ClusterOption,
    Loaded,
    RecipeArgument,
    SetOption,
    UnsetOption,
    load_plans,
    one_plan,
)
from srtctl.cli.exits import CHECKS_FAILED, FAILED, INTERRUPTED, OK, USAGE, fail, say
from srtctl.cli.located import Output, OutputOption, site_of

if TYPE_CHECKING:
    from srtctl.cli.located import Site
    from srtctl.runs.model import RunStatus
    from srtctl.runs.record import RunRecord
    from srtctl.runs.watch import Watch
    from srtctl.slurm import Slurm


def command(
    recipe: RecipeArgument,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until it serves, its benchmark ended, or it failed.")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(min=0, help="With --wait: give up waiting after this many seconds.", metavar="SECONDS"),
    ] = None,
    output: OutputOption = Output.text,
    cluster: ClusterOption = None,
    sets: SetOption = None,
    unset: UnsetOption = None,
    allow_unsupported: AllowUnsupportedOption = False,
) -> None:
    """Submit a recipe to Slurm. With --wait, exits 0 when it serves or its benchmark finished, 1 when it failed, 3 when
    its checks failed.

    Of a file with several variants name one, as FILE:VARIANT; without a name they are listed, and nothing is submitted.
    """
    profile, planned = load_plans(recipe, cluster, sets, unset, allow_unsupported)
    if len(planned) > 1:
        from srtctl.cli.variants import variant_lines

        say("\n".join(variant_lines(recipe, planned, "apply")))
        raise typer.Exit(USAGE)
    loaded = one_plan(recipe, profile, planned)
    site = site_of(loaded.cluster)

    from srtctl.runs.create import new_run_dir
    from srtctl.runs.watch import Watch
    from srtctl.slurm import Slurm, SlurmError, scrubbed

    try:
        directory = new_run_dir(site.output_dir, loaded.plan.name)
    except OSError as error:
        fail(f"no run directory can be made: {error}", "set `output_dir` in the profile to a shared, writable folder")
    _write_bundle(loaded, directory)
    _ask_dynamo(loaded, directory)
    slurm = Slurm(scrubbed(os.environ, site.slurm_conf))
    try:
        record = _submit(loaded, site, directory, slurm)
    except SlurmError as error:
        if error.uncertain:
            say(f"note: {directory} is kept, because a job may use it")
        else:
            shutil.rmtree(directory)
        fail(error.message, error.hint)
    say(f"submitted {record.run}, job {record.job_id}, in {directory}")

    watch = Watch(directory, slurm)
    status = _wait(watch, record, timeout, serving=loaded.plan.client is None) if wait else watch.look()
    _print(status, output)
    if wait:
        raise typer.Exit(_exit_code(status))


def _write_bundle(loaded: Loaded, directory: Path) -> None:
    """Fill the run directory, or leave none behind. Exits 2 when the plan cannot be rendered."""
    from srtctl.cli.diagnostics import print_diagnostics
    from srtctl.diagnostics import DiagnosticError
    from srtctl.render.bundle import write_bundle
    from srtctl.runs.layout import RunDir

    try:
        write_bundle(loaded.plan, directory, loaded.recipe_yaml)
        RunDir(directory).prepare()
    except DiagnosticError as error:
        shutil.rmtree(directory)
        print_diagnostics(error.diagnostics)
        raise typer.Exit(USAGE) from None
    except BaseException:
        shutil.rmtree(directory)
        raise


def _ask_dynamo(loaded: Loaded, directory: Path) -> None:
    """Where this machine has the nodes' Dynamo: exit 2, and leave no run directory, when it lacks what the plan uses."""
    profile = loaded.cluster.profile
    if profile is None or profile.dynamo_python is None or profile.container_runtime != "none":
        return
    from srtctl.runs.layout import RunDir
    from srtctl.runs.stack import lacking

    if words := lacking(RunDir(directory), loaded.plan, profile.dynamo_python):
        shutil.rmtree(directory)
        fail(words, f"nothing was submitted; asked was `dynamo_python`, {profile.dynamo_python}", USAGE)


def _submit(loaded: Loaded, site: Site, directory: Path, slurm: Slurm) -> RunRecord:
    """Submit the bundle and note what was submitted. Raises SlurmError."""
    from datetime import datetime

    from srtctl import __version__
    from srtctl.runs.layout import RunDir
    from srtctl.runs.record import RunRecord, write_record

    run = RunDir(directory)
    submitted = slurm.submit(run.script)
    record = RunRecord(
        name=loaded.plan.name,
        run=directory.name,
        job_id=submitted.job_id,
        cluster=site.cluster,
        slurm_conf=site.slurm_conf or os.environ.get("SLURM_CONF"),
        submitted=datetime.now().astimezone().isoformat(timespec="milliseconds"),
        recipe=str(loaded.recipe_path.resolve()),
        version=__version__,
        slurm_cluster=submitted.cluster,
    )
    write_record(run.record, record)
    return record


def _wait(watch: Watch, record: RunRecord, timeout: float | None, *, serving: bool) -> RunStatus:
    """Follow the run until it ended, or on request until it is `serving`. Exits when that takes longer than `timeout`, or on Ctrl-C."""
    from srtctl.cli.progress import follow

    goes_on = f"it goes on: `srtctl status {record.run}` looks, `srtctl cancel {record.run}` ends it"
    try:
        status = follow(watch, lambda status: status.ended or (serving and status.phase == "serving"), say, timeout)
    except KeyboardInterrupt:
        say(f"\nno longer waiting for {record.run} (job {record.job_id}); {goes_on}")
        raise typer.Exit(INTERRUPTED) from None
    if status is None:
        fail(f"{record.run} {'does not serve' if serving else 'has not ended'} after {timeout:g} s of waiting", goes_on)
    return status


def _print(status: RunStatus, output: Output) -> None:
    from srtctl.cli.show import status_lines

    text = json.dumps(status.as_dict(), indent=2) if output is Output.json else "\n".join(status_lines(status))
    typer.echo(text)


def _exit_code(status: RunStatus) -> int:
    if status.outcome == "checks_failed":
        return CHECKS_FAILED
    return OK if status.phase == "serving" or status.outcome == "completed" else FAILED
