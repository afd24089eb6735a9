"""A Slurm made of shell scripts on PATH, a profile that points at it, and a recipe: real processes, no cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from typer.testing import CliRunner

from srtctl.cli import apply, cancel, check, logs, status

JOB = "41"
RECIPE = """\
schema: 2
name: demo
model: {path: /models/tiny, container: none}
resources: {gpus_per_node: 1}
engine: sglang
roles:
  agg:
    nodes: 2
    workers: 1
    gpus: 2
    kv_events: true
    sidecar: true
    args:
      served-model-name: tiny
      tensor-parallel-size: 2
      data-parallel-size: 2
      enable-dp-attention: true
      page-size: 16
frontend:
  type: dynamo
  args: {router-mode: kv}
"""
# Each reads its answer from the folder beside it, so that a test can change it at any time.
COMMANDS = {
    "sbatch": """
        env > "$HERE/sbatch.env"; echo "$@" > "$HERE/sbatch.argv"
        if [ -e "$HERE/sbatch.error" ]; then cat "$HERE/sbatch.error" >&2; exit 1; fi
        for script; do :; done
        run=${script%/*}
        echo "41|RUNNING|sandbox-[0-1]|None" > "$HERE/queue"
        [ ! -e "$HERE/on_submit" ] || RUN=$run sh "$HERE/on_submit"
        printf 'Welcome to this cluster!\\n41\\n'
    """,
    "squeue": """
        if [ -e "$HERE/squeue.error" ]; then cat "$HERE/squeue.error" >&2; exit 1; fi
        [ ! -e "$HERE/queue" ] || cat "$HERE/queue"
        [ ! -e "$HERE/on_squeue" ] || sh "$HERE/on_squeue"
    """,
    "scancel": """
        echo "$@" >> "$HERE/scancel.argv"
        [ ! -e "$HERE/on_cancel" ] || sh "$HERE/on_cancel"
        echo "41|CANCELLED|sandbox-[0-1]|None" > "$HERE/queue"
    """,
    "sacct": "echo 'Slurm accounting storage is disabled' >&2; exit 1",
    "scontrol": "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1",
    "srun": """
        echo "$@" > "$HERE/srun.argv"
        while case $1 in --*) ;; *) false ;; esac do shift; done
        exec "$@"
    """,
}
NODES = "0\tsandbox-0\t10.0.0.1\n1\tsandbox-1\t10.0.0.2\n"


@dataclass
class Bench:
    """`fake` holds the Slurm's answers, `runs` the run directories; commands are run in `home`."""

    home: Path
    fake: Path
    app: typer.Typer

    @property
    def runs(self) -> Path:
        return self.home / "runs"

    def __call__(self, *argv: str) -> Any:
        return CliRunner().invoke(self.app, list(argv))

    def answer(self, name: str, text: str) -> None:
        (self.fake / name).write_text(text)

    def forget(self, name: str) -> None:
        (self.fake / name).unlink()

    def asked(self, name: str) -> str:
        return (self.fake / name).read_text()

    def submit(self) -> Path:
        """A submitted run whose job runs and has said nothing."""
        result = self("apply", "demo.yaml")
        assert result.exit_code == 0, result.output
        return self.runs / "demo-1"


def job_events(*names: str | dict[str, Any]) -> str:
    """Lines of events/job.jsonl."""
    events = [{"event": name} if isinstance(name, str) else name for name in names]
    return "".join(json.dumps({"ts": 4e9 + at, "node": None} | event) + "\n" for at, event in enumerate(events))


SERVING = job_events({"event": "job_started", "job_id": JOB}, "processes_ready", "gate_passed", "serving")


def serve(run: Path) -> None:
    """What the job of a run has written by the time it serves."""
    (run / "state" / "nodes.tsv").write_text(NODES)
    (run / "events" / "job.jsonl").write_text(SERVING)


def make_bench(root: Path) -> Bench:
    """A home with a recipe and a profile, and the fake Slurm beside it."""
    fake, home = root / "slurm", root / "home"
    fake.mkdir()
    home.mkdir()
    for name, body in COMMANDS.items():
        (fake / name).write_text(f"#!/bin/sh\nHERE={fake}\n{body}\n")
        (fake / name).chmod(0o755)
    (fake / "slurm.conf").write_text("")
    (home / "demo.yaml").write_text(RECIPE)
    (home / "srtslurm.yaml").write_text(
        f"cluster: fake\nslurm_conf: {fake}/slurm.conf\noutput_dir: {home}/runs\nruntime_python: {fake}/python\n"
    )
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
    commands: dict[str, Callable[..., None]] = {
        "apply": apply.command,
        "status": status.command,
        "logs": logs.command,
        "check": check.command,
        "cancel": cancel.command,
    }
    for name, function in commands.items():
        app.command(name)(function)
    return Bench(home, fake, app)
