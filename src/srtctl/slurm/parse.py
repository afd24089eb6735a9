"""Reading what Slurm commands print. Pure; lines that are no answer (site banners, headers) are skipped."""

from __future__ import annotations

import re
from typing import NamedTuple

from srtctl.slurm.states import STAGES, JobState

SQUEUE_FORMAT = "%i|%T|%N|%r"  # the reason comes last: it may hold anything
SACCT_FORMAT = "JobIDRaw,State,ExitCode,NodeList"

_SUBMITTED = re.compile(r"^(\d+)(?:;(\S+))?$")
# 12, an array task 12_3, a heterogeneous component 12+0
_JOB_ID = re.compile(r"^(\d+)(?:_\S+|\+(\d+))?$")
_FIELD = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z:/_]*)=(\S*)")
_EMPTY = frozenset({"", "(null)", "None assigned", "N/A"})


class Submitted(NamedTuple):
    """What sbatch answered: the job id, and the name of the cluster when it is not the local one."""

    job_id: str
    cluster: str = ""


def parse_submitted(stdout: str) -> Submitted | None:
    """The last line of `sbatch --parsable` that reads `id` or `id;cluster`; None when there is none."""
    for line in reversed(stdout.splitlines()):
        if match := _SUBMITTED.match(line.strip()):
            return Submitted(match[1], match[2] or "")
    return None


def parse_squeue(stdout: str) -> dict[str, JobState]:
    """Job id to state from `squeue -o SQUEUE_FORMAT`. Of a heterogeneous job the first component speaks for all."""
    found: dict[str, JobState] = {}
    for line in stdout.splitlines():
        parts = line.strip().split("|", 3)
        match = _JOB_ID.match(parts[0])
        if match is None or len(parts) < 4 or not parts[1].strip() or match[2] not in (None, "0"):
            continue
        state, by = _state_words(parts[1])
        found[match[1]] = JobState("known", state, parts[3].strip(), _known(parts[2]), by=by)
    return found


def parse_sacct(stdout: str) -> dict[str, JobState]:
    """Job id to state from `sacct -P -n -X -o SACCT_FORMAT`; a later line for the same id (a requeue) wins."""
    found: dict[str, JobState] = {}
    for line in stdout.splitlines():
        parts = line.strip().split("|")
        if len(parts) != 4 or not parts[0].isdigit() or not parts[1].strip():
            continue
        state, by = _state_words(parts[1])
        found[parts[0]] = JobState("known", state, "", _known(parts[3]), parse_exit_code(parts[2]), by)
    return found


def parse_scontrol(stdout: str, job_id: str) -> JobState | None:
    """The state from `scontrol show job -o`; None when no line is about `job_id`."""
    for line in stdout.splitlines():
        fields = dict(_FIELD.findall(line))
        if fields.get("JobId") == job_id and "JobState" in fields:
            state, by = _state_words(fields["JobState"])
            exit_code = parse_exit_code(fields.get("ExitCode", ""))
            return JobState("known", state, fields.get("Reason", ""), _known(fields.get("NodeList", "")), exit_code, by)
    return None


def parse_exit_code(text: str) -> tuple[int, int] | None:
    """`code:signal` as numbers; None for anything else."""
    match = re.fullmatch(r"(\d+):(\d+)", text.strip())
    return (int(match[1]), int(match[2])) if match else None


def _state_words(text: str) -> tuple[str, str]:
    """`CANCELLED by 1000` -> (`CANCELLED`, `1000`); sacct cuts long states short and marks it with `+`."""
    words = text.split()
    state = words[0]
    if state.endswith("+"):
        state = next((name for name in sorted(STAGES) if name.startswith(state[:-1])), state[:-1])
    return state, words[2] if len(words) == 3 and words[1] == "by" else ""


def _known(text: str) -> str:
    return "" if text.strip() in _EMPTY else text.strip()
