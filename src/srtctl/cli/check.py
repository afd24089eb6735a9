"""`srtctl check`: run the post-launch checks again, inside the running job."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from srtctl.cli.common import ClusterOption
from srtctl.cli.exits import CHECKS_FAILED, OK, USAGE, fail, say
from srtctl.cli.located import RunArgument, locate, slurm_for

if TYPE_CHECKING:
    from pathlib import Path

    from srtctl.runs.model import RunFiles, RunStatus

# Exit codes of `python3 -m srtctl.checks` that come with a checks.json.
VERDICTS = {0: OK, 3: CHECKS_FAILED}


class Output(StrEnum):
    """Values of --output."""

    text = "text"
    json = "json"
    junit = "junit"


def command(
    run: RunArgument,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Only this check; may be repeated.", metavar="NAME")
    ] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print.")] = Output.text,
    cluster: ClusterOption = None,
) -> None:
    """Run the checks of a serving run inside its job. Exits 0 passed, 3 failed, 2 when the run does not serve."""
    import time

    from srtctl.runs.load import read_run
    from srtctl.runs.status import derive
    from srtctl.slurm import SlurmError

    root = locate(run, cluster)
    files = read_run(root)
    _refuse_unknown(files, only or [])
    slurm = slurm_for(files.record, cluster)
    job = slurm.job(files.job_id) if files.job_id else None
    files = read_run(root)
    _refuse_not_serving(derive(files, job, time.time()))
    node = files.nodes[0].name
    say(f"running {', '.join(only or _planned(files))} on {node}, inside job {files.job_id}")
    try:
        done = slurm.srun_in_job(files.job_id, _argv(root, files, only or []), node=node, chdir=root)
    except SlurmError as error:
        fail(error.message, error.hint)
    if done.returncode not in VERDICTS:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        fail(f"the checks could not run (exit code {done.returncode}):\n{said}")
    _print(root, output, only=bool(only))
    raise typer.Exit(VERDICTS[done.returncode])


def _planned(files: RunFiles) -> list[str]:
    return [check["name"] for check in files.plan.get("checks", ())]


def _refuse_unknown(files: RunFiles, only: list[str]) -> None:
    from srtctl.diagnostics import did_you_mean

    planned = _planned(files)
    if not planned:
        fail(f"the plan of {files.run} has no checks", "its recipe turned them off, or none applies", USAGE)
    for name in only:
        if name not in planned:
            fail(f"{files.run} has no check `{name}`", did_you_mean(name, planned), USAGE)


def _refuse_not_serving(status: RunStatus) -> None:
    """Checks need a deployment that serves; before that its own job runs them, after that there is nothing to ask."""
    from srtctl.cli.show import headline

    run = status.run
    if status.slurm_error:
        fail(f"cannot tell whether {run} still runs: {status.slurm_error}", "try again when `squeue` answers")
    match status.phase:
        case "serving":
            return
        case "not submitted":
            fail(f"{run} was never submitted", "`srtctl apply RECIPE` does", USAGE)
        case "ended":
            fail(
                f"{run} is not running: {headline(status)}", f"`srtctl status {run}` shows what its checks found", USAGE
            )
        case phase:
            fail(
                f"{run} is not serving yet: {phase}" if phase != "stopping" else f"{run} is stopping",
                f"its job runs the checks by itself before it serves; `srtctl status {run} -w` follows it",
                USAGE,
            )


def _argv(root: Path, files: RunFiles, only: list[str]) -> list[str]:
    from srtctl.runs.layout import RunDir

    run = RunDir(root)
    python = files.plan["runtime"]["python"]
    argv = ["env", f"PYTHONPATH={run.lib}", python, "-m", "srtctl.checks"]
    argv += ["--plan", str(run.plan), "--nodes", str(run.nodes), "--out", str(run.checks_again if only else run.checks)]
    return argv + [word for name in only for word in ("--only", name)]


def _print(root: Path, output: Output, *, only: bool) -> None:
    from srtctl.cli.show import check_lines
    from srtctl.runs.causes import check_results
    from srtctl.runs.layout import RunDir
    from srtctl.runs.record import read_object

    run = RunDir(root)
    checks = read_object(run.checks_again if only else run.checks)
    if output is Output.json:
        typer.echo(json.dumps(checks, indent=2))
        return
    if output is Output.junit:
        from srtctl.cli.junit import junit

        typer.echo(junit(root.name, checks))
        return
    typer.echo("\n".join([*check_lines(check_results(checks)), f"verdict: {checks.get('verdict', 'none')}"]))
