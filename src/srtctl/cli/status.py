"""`srtctl status`: all runs, or one in full."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated

import typer

from srtctl.cli.common import ClusterOption
from srtctl.cli.exits import say
from srtctl.cli.located import Output, OutputOption, find_site, locate, slurm_for

if TYPE_CHECKING:
    from pathlib import Path

    from srtctl.runs.model import RunFiles, RunStatus
    from srtctl.slurm import JobState


def command(
    run: Annotated[
        str | None, typer.Argument(help="A run: its name, job id, directory, or a recipe's name.", metavar="[RUN]")
    ] = None,
    output: OutputOption = Output.text,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Say what happens until the run ended.")] = False,
    cluster: ClusterOption = None,
) -> None:
    """Show a run: its state, why it failed, where it runs and what its checks found. Without RUN: list all."""
    if run is None:
        _list(output, cluster)
        return
    from srtctl.cli.show import status_lines

    status = _one(locate(run, cluster), cluster, watch=watch)
    typer.echo(json.dumps(status.as_dict(), indent=2) if output is Output.json else "\n".join(status_lines(status)))


def _one(root: Path, cluster: str | None, *, watch: bool) -> RunStatus:
    from srtctl.cli.progress import follow
    from srtctl.runs.layout import RunDir
    from srtctl.runs.load import read_run
    from srtctl.runs.record import read_record
    from srtctl.runs.status import derive
    from srtctl.runs.watch import Watch

    slurm = slurm_for(read_record(RunDir(root).record), cluster)
    if watch:
        found = follow(Watch(root, slurm), lambda status: status.ended or status.phase == "not submitted", say)
        if found is not None:
            return found
    job_id = read_run(root).job_id
    job = slurm.job(job_id) if job_id else None
    return derive(read_run(root), job, time.time())


def _list(output: Output, cluster: str | None) -> None:
    from srtctl.cli.show import row_dict, table_lines
    from srtctl.runs.find import list_runs
    from srtctl.runs.load import read_run
    from srtctl.runs.status import derive

    site = find_site(cluster)
    runs = [read_run(root) for root in list_runs(site.output_dir)]
    jobs = _jobs(runs, cluster)
    statuses = [derive(files, jobs.get(index), time.time()) for index, files in enumerate(runs)]
    if output is Output.json:
        typer.echo(json.dumps({"runs": [row_dict(status) for status in statuses]}, indent=2))
    elif statuses:
        typer.echo("\n".join(table_lines(statuses)))
    else:
        say(f"no runs in {site.output_dir}; `srtctl apply RECIPE` makes one")


def _jobs(runs: list[RunFiles], cluster: str | None) -> dict[int, JobState]:
    """Slurm's view of the runs that left no end record, by index: one query for each Slurm they were submitted to."""
    asked: dict[tuple[str | None, str], list[int]] = {}
    for index, files in enumerate(runs):
        if files.job_id and files.end is None:
            record = files.record
            key = (record.slurm_conf, record.slurm_cluster) if record else (None, "")
            asked.setdefault(key, []).append(index)
    found: dict[int, JobState] = {}
    for indices in asked.values():
        states = slurm_for(runs[indices[0]].record, cluster).jobs(runs[i].job_id for i in indices)
        found |= {i: states[runs[i].job_id] for i in indices}
    return found
