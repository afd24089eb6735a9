"""Questions to a sandbox's own slurmctld, asked with Slurm's own commands."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from srtctl.sandbox.layout import Layout
from srtctl.sandbox.packages import SYSTEM_PATH

TIMEOUT_SECONDS = 15


def slurm_version(programs: Mapping[str, str]) -> tuple[int, int]:
    """(22, 5) for `slurm-wlm 22.05.8`; (0, 0) when the answer has another form."""
    done = subprocess.run([programs["slurmd"], "-V"], capture_output=True, text=True, check=False)
    parts = (done.stdout.split() or [""])[-1].split(".")
    return (
        (int(parts[0]), int(parts[1])) if len(parts) > 1 and parts[0].isdecimal() and parts[1].isdecimal() else (0, 0)
    )


def answers(programs: Mapping[str, str], layout: Layout) -> bool:
    """True when slurmctld answers."""
    return _ask([programs["scontrol"], "ping"], layout) is not None


def node_states(programs: Mapping[str, str], layout: Layout) -> dict[str, str]:
    """Node name -> Slurm's state of it (`idle`, `mixed`, `down*`), empty when slurmctld does not answer.

    A trailing `*` is Slurm's sign for a node that does not answer.
    """
    text = _ask([programs["sinfo"], "--noheader", "--Node", "--format=%N %T"], layout) or ""
    return dict(line.split() for line in text.splitlines() if len(line.split()) == 2)


def jobs(programs: Mapping[str, str], layout: Layout) -> list[str] | None:
    """Ids of the jobs that are not over; None when slurmctld does not answer."""
    text = _ask([programs["squeue"], "--noheader", "--all", "--format=%A"], layout)
    return None if text is None else text.split()


def cancel(programs: Mapping[str, str], layout: Layout, ids: Sequence[str]) -> None:
    """Cancels these jobs: Slurm sends TERM and, after KillWait, KILL."""
    _ask([programs["scancel"], *ids], layout)


def _ask(argv: Sequence[str], layout: Layout) -> str | None:
    env = {"PATH": SYSTEM_PATH, "SLURM_CONF": str(layout.slurm_conf), "LC_ALL": "C"}
    try:
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return None
    return done.stdout if done.returncode == 0 else None
