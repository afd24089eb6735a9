"""`srtctl cancel`: end a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from srtctl.cli.common import ClusterOption
from srtctl.cli.exits import INTERRUPTED, USAGE, fail, say
from srtctl.cli.located import RunArgument, locate, slurm_for

if TYPE_CHECKING:
    from srtctl.runs.model import RunStatus
    from srtctl.runs.watch import Watch


def command(
    run: RunArgument,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the job is gone from its nodes.")] = False,
    now: Annotated[bool, typer.Option("--now", help="Let Slurm end everything at once; streams are cut off.")] = False,
    timeout: Annotated[
        float, typer.Option(min=0, help="With --wait: seconds to wait at most.", metavar="SECONDS")
    ] = 120.0,
    cluster: ClusterOption = None,
) -> None:
    """End a run: frontends finish the streams they have, then all processes get a TERM, a grace period, a KILL.

    A run that ended already is no error."""
    from srtctl.runs.load import read_run
    from srtctl.runs.watch import Watch
    from srtctl.slurm import SlurmError

    root = locate(run, cluster)
    files = read_run(root)
    if not files.job_id:
        fail(f"{files.run} was never submitted, so there is nothing to cancel", code=USAGE)
    slurm = slurm_for(files.record, cluster)
    job = slurm.job(files.job_id)
    if job.stage == "ended":
        say(f"{files.run} (job {files.job_id}) ended already: `srtctl status {files.run}` says how")
        return
    # A job that is up drains when its script alone is asked; one that does not listen yet, or any more, is Slurm's to end.
    listens = not now and job.stage == "active" and bool(files.events) and files.end is None
    try:
        slurm.cancel(files.job_id, script_only=listens)
    except SlurmError as error:
        fail(error.message, error.hint)
    say(f"asked Slurm to cancel {files.run}, job {files.job_id}")
    if wait:
        _wait(Watch(root, slurm), timeout)


def _wait(watch: Watch, timeout: float) -> None:
    from srtctl.cli.progress import follow
    from srtctl.cli.show import headline

    def gone(status: RunStatus) -> bool:
        return status.ended and watch.job is not None and watch.job.stage == "ended"

    try:
        status = follow(watch, gone, say, timeout)
    except KeyboardInterrupt:
        say("\nno longer waiting; the job is being cancelled")
        raise typer.Exit(INTERRUPTED) from None
    if status is None:
        status = watch.look()
        left = [part.label for part in status.parts if part.state in ("running", "listening")]
        said = f"Slurm reports {watch.job.state}" if watch.job and watch.job.state else "Slurm does not answer"
        fail(
            f"{status.run} has not ended after {timeout:g} s: {said}" + (f"; left: {', '.join(left)}" if left else ""),
            f"`squeue --jobs {status.job_id}` shows the job; `srtctl cancel {status.run} --now` lets Slurm kill what is left",
        )
    say(f"{status.run}: {headline(status)}")
