"""Whether the Dynamo of a cluster has what a plan uses, asked on this machine before a job is submitted."""

from __future__ import annotations

import os
import subprocess

from srtctl.plan.model import Plan
from srtctl.runs.layout import RunDir

SECONDS = 15
MISSING = 4  # what checks/stack.py exits with


def lacking(run: RunDir, plan: Plan, python: str) -> str:
    """What the Dynamo of `python`, a command of this machine, lacks for the plan in `run`, in a sentence; else empty.

    Empty too where that cannot be told: the job asks again, on a node. What a set-up installs is not there yet, so a
    plan with one is not asked for.
    """
    if any(worker.setup for worker in plan.workers):
        return ""
    argv = [python, str(run.lib / "srtctl" / "checks" / "stack.py"), str(run.plan), python]
    try:
        done = subprocess.run(
            argv,
            env={**os.environ, **plan.environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == MISSING else ""
