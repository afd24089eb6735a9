"""`srtctl logs`: what the job, a worker, a process or one part of it wrote."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from srtctl.cli.common import ClusterOption
from srtctl.cli.exits import INTERRUPTED, USAGE, fail
from srtctl.cli.located import RunArgument, locate, slurm_for

if TYPE_CHECKING:
    from pathlib import Path

    from srtctl.runs.model import RunFiles
    from srtctl.runs.watch import Watch

READ_EVERY = 0.3  # seconds between two looks at growing files

ProcessArgument = Annotated[
    str | None,
    typer.Argument(
        help="agg-0, agg-0.1, agg-0.1.sidecar, etcd, frontend-0 …; without it, the job's own log.", metavar="[PROCESS]"
    ),
]
TailOption = Annotated[
    int | None, typer.Option(min=0, help="Only the last lines.", metavar="LINES", show_default="all")
]


def command(
    run: RunArgument,
    process: ProcessArgument = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as they grow, until the run ended.")] = False,
    tail: TailOption = None,
    cluster: ClusterOption = None,
) -> None:
    """Print the logs of a run: of the job, of a worker with all its processes, of a process, or of one part of it."""
    from srtctl.runs.load import read_run
    from srtctl.runs.logs import last_lines
    from srtctl.runs.watch import Watch

    root = locate(run, cluster)
    files = read_run(root)
    paths = _paths(root, files, process)
    if not follow and not any(path.exists() for path in paths):
        fail(f"{files.run} has not written {paths[0].name} (yet)", f"`srtctl status {files.run}` says how far it came")
    printer = _Printer(headers=len(paths) > 1)
    offsets: dict[Path, int] = {}
    for path in paths:
        text, offsets[path] = last_lines(path, tail)
        printer.write(path, text)
    if follow:
        try:
            _follow(Watch(root, slurm_for(files.record, cluster)), offsets, printer)
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None


def _paths(root: Path, files: RunFiles, process: str | None) -> tuple[Path, ...]:
    """The files that `process` means; exits 2 when it means none."""
    from srtctl.diagnostics import did_you_mean
    from srtctl.runs.layout import RunDir, job_log
    from srtctl.runs.logs import log_names

    logs = RunDir(root).logs
    if process is None:
        if not files.job_id:
            fail(f"{files.run} was never submitted, so it has no log", f"sbatch {RunDir(root).script}", USAGE)
        return (logs / job_log(files.job_id),)
    known = log_names(files.plan, (path.name for path in logs.glob("*.log")))
    if process not in known:
        near = did_you_mean(process, known)
        hint = near if near.startswith("did you mean") else f"there are: {', '.join(sorted(known))}"
        fail(f"{files.run} has no process `{process}`", hint, USAGE)
    return tuple(logs / name for name in known[process])


class _Printer:
    """Writes pieces of several files, each under a header that names its file."""

    def __init__(self, *, headers: bool) -> None:
        self._headers = headers
        self._last: Path | None = None

    def write(self, path: Path, text: str) -> None:
        if not text:
            return
        if self._headers and path != self._last:
            typer.echo(f"==> {path.name} <==")
        self._last = path
        typer.echo(text, nl=not text.endswith("\n"))


def _follow(watch: Watch, offsets: dict[Path, int], printer: _Printer) -> None:
    from srtctl.runs.logs import read_from

    ended = False
    while not ended:
        # Looked at before the files: what was written until the end is then still read.
        ended = watch.look().ended
        for path in offsets:
            text, offsets[path] = read_from(path, offsets[path])
            printer.write(path, text)
        if not ended:
            time.sleep(READ_EVERY)
