"""From a verb's arguments to the run it means, and to the Slurm that runs it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from srtctl.cli.exits import USAGE, fail

if TYPE_CHECKING:
    from srtctl.cluster.load import LoadedCluster
    from srtctl.runs.record import RunRecord
    from srtctl.slurm import Slurm

RunArgument = Annotated[
    str,
    typer.Argument(
        help="A run: its name, its job id, its directory, or a recipe's name (its latest run).", metavar="RUN"
    ),
]


class Output(StrEnum):
    """Values of --output."""

    text = "text"
    json = "json"


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How to print.")]


@dataclass(frozen=True, slots=True)
class Site:
    """Where runs lie, and which Slurm a new one goes to (None: the machine's own)."""

    output_dir: Path
    slurm_conf: str | None
    cluster: str


def site_of(loaded: LoadedCluster) -> Site:
    """The site of a cluster profile. A relative `output_dir` lies beside the profile; without one it is ./runs."""
    profile = loaded.profile
    base = loaded.path.parent if loaded.path else Path.cwd()
    if profile is None:
        return Site(Path.cwd() / "runs", None, "")
    configured = Path(profile.output_dir).expanduser() if profile.output_dir else Path.cwd() / "runs"
    return Site(base / configured, profile.slurm_conf or None, profile.cluster or "")


def find_site(cluster: str | None) -> Site:
    """The site of `--cluster`, else of the profile found here; its errors are shown. Exits 2 when it cannot be read."""
    from srtctl.cli.diagnostics import print_diagnostics
    from srtctl.cluster.load import find_profile, load_cluster

    loaded = load_cluster(find_profile(cluster, Path.cwd(), os.environ))
    if errors := [found for found in loaded.diagnostics if found.severity == "error"]:
        print_diagnostics(errors)
    if loaded.profile is None:
        raise typer.Exit(USAGE)
    return site_of(loaded)


def locate(ref: str, cluster: str | None) -> Path:
    """The run directory that `ref` means; exits 2 with near matches when there is none. A path needs no profile."""
    from srtctl.runs.find import RunNotFoundError, find_run, is_path

    output_dir = Path.cwd() if is_path(ref) else find_site(cluster).output_dir
    try:
        return find_run(ref, output_dir, Path.cwd())
    except RunNotFoundError as error:
        fail(error.message, error.hint, USAGE)


def slurm_for(record: RunRecord | None, cluster: str | None) -> Slurm:
    """The Slurm that a run was submitted to; for a bundle submitted by hand, that of the profile."""
    from srtctl.slurm import Slurm, scrubbed

    if record is None:
        return Slurm(scrubbed(os.environ, find_site(cluster).slurm_conf))
    env = scrubbed(os.environ, record.slurm_conf)
    if record.slurm_cluster:
        env["SLURM_CLUSTERS"] = record.slurm_cluster
    return Slurm(env)
