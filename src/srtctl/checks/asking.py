"""Ask nodes of the job for something that only they see, each in a step of its own beside what runs there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Collection, Mapping

from srtctl.checks.deployment import Deployment
from srtctl.checks.net import NetError
from srtctl.checks.sockets import Connection

_SECONDS = 30.0


def connections(
    deployment: Deployment, nodes: Collection[int], ports: Collection[int]
) -> dict[int, tuple[Connection, ...]]:
    """The connections to or from `ports` that each of these plan nodes has now. Raises NetError, saying why not."""
    if "SLURM_JOB_ID" not in os.environ:
        raise NetError("the nodes cannot be asked from outside the job")
    names = ",".join(deployment.nodes[node].name for node in sorted(nodes))
    argv = ["srun", "--jobid", os.environ["SLURM_JOB_ID"], "--overlap", "--input=none", "--job-name=sockets"]
    argv += [f"--nodes={len(nodes)}", f"--ntasks={len(nodes)}", "--ntasks-per-node=1", f"--nodelist={names}"]
    argv += [sys.executable, "-m", "srtctl.checks.sockets", str(deployment.run_dir), *map(str, sorted(ports))]
    try:
        done = subprocess.run(
            argv, env=_outside(os.environ), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NetError(f"the nodes could not be asked: {error}") from None
    try:
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        seen = {answer["node"]: tuple(Connection(**each) for each in answer["connections"]) for answer in answers}
    except (KeyError, TypeError, ValueError):
        seen = {}
    if done.returncode or set(seen) != set(nodes):
        said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise NetError(f"not every node could be asked for its connections: {said}")
    return seen


def _outside(environment: Mapping[str, str]) -> dict[str, str]:
    """Without what Slurm told this step of itself, which would bind a new one to the same node and tasks."""
    return {name: value for name, value in environment.items() if not name.startswith("SLURM_") or name == "SLURM_CONF"}
