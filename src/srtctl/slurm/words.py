"""Slurm's codes and complaints in words, as tables."""

from __future__ import annotations

import re

# Why a job waits. Slurm appends details after a comma or in parentheses: `ReqNodeNotAvail, UnavailableNodes:n[1-2]`.
PENDING_REASONS: dict[str, str] = {
    "AssocGrpCpuLimit": "the account's CPU limit is used up",
    "AssocGrpGRES": "the account's GPU limit is used up",
    "AssocGrpNodeLimit": "the account's node limit is used up",
    "AssocMaxJobsLimit": "the account's limit of running jobs is reached",
    "AssociationJobLimit": "the account's limit of running jobs is reached",
    "BadConstraints": "no node can ever satisfy what the job asks for",
    "BeginTime": "its start time has not come (or it was requeued a moment ago)",
    "Cleaning": "its earlier attempt is still being cleaned up",
    "Dependency": "a job it depends on has not finished",
    "DependencyNeverSatisfied": "a job it depends on failed, so it will never start",
    "InvalidAccount": "its account is not valid",
    "InvalidQOS": "its QOS is not valid",
    "JobHeldAdmin": "an administrator holds it",
    "JobHeldUser": "it is held (scontrol release JOBID lets it go)",
    "Licenses": "a licence is not free",
    "NodeDown": "a node it needs is down",
    "None": "Slurm has not looked at it yet",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition is inactive",
    "PartitionNodeLimit": "it asks for more nodes than its partition gives one job",
    "PartitionTimeLimit": "its time limit is above that of its partition",
    "Priority": "jobs of higher priority are ahead",
    "QOSGrpCpuLimit": "the QOS's CPU limit is used up",
    "QOSGrpGRES": "the QOS's GPU limit is used up",
    "QOSGrpNodeLimit": "the QOS's node limit is used up",
    "QOSMaxGRESPerUser": "your GPU limit in this QOS is used up",
    "QOSMaxJobsPerUserLimit": "your limit of running jobs in this QOS is reached",
    "QOSMaxNodePerUserLimit": "your node limit in this QOS is used up",
    "QOSNotAllowed": "its QOS is not allowed on its partition",
    "ReqNodeNotAvail": "a node it needs is not available",
    "Reservation": "its reservation has not started",
    "ReservationDeleted": "its reservation was deleted",
    "Resources": "the nodes it needs are busy",
}

# Exit codes of a batch job that Slurm itself gives, as `code:signal`.
EXIT_WORDS: dict[tuple[int, int], str] = {
    (
        0,
        53,
    ): "Slurm could not start the script (0:53): the folder of its log is missing or cannot be written on the node",
    (0, 125): "it ran out of memory (0:125)",
}


# What sbatch refuses jobs for, and what to do about it.
SUBMIT_HINTS: dict[str, str] = {
    "invalid partition": "set `slurm.partition` in the recipe or `default_partition` in the profile (see `sinfo -s`)",
    "Invalid account": "set `slurm.account` in the recipe or `default_account` in the profile",
    "Invalid qos": "see `sacctmgr show assoc user=$USER` for the QOS you may use",
    "time limit": "lower `slurm.time_limit` in the recipe, or choose a partition that allows it",
    "node configuration is not available": "no node has what is asked for: compare `srtctl plan` with `sinfo -N -l`",
    "More processors requested": "the partition has too few nodes: compare `srtctl plan` with `sinfo -s`",
    "Node count specification invalid": "the partition has too few nodes: compare `srtctl plan` with `sinfo -s`",
    "Unable to contact slurm controller": "Slurm's controller is down or unreachable from here: try `sinfo`",
    "Invalid generic resource": "the nodes have no such GPUs: `sinfo -o '%N %G'` shows what they have",
}


def pending_in_words(reason: str) -> str:
    """Why a job waits: `Priority` -> `jobs of higher priority are ahead`; Slurm's word where the table has none."""
    code, separator, detail = (part.strip() for part in reason.strip().strip("()").partition(","))
    if not separator and (match := re.match(r"([A-Za-z_]+)\s*[(:]\s*(.+?)\)?$", code)):
        code, detail = match.groups()
    words = PENDING_REASONS.get(code, code or PENDING_REASONS["None"])
    return f"{words} ({detail})" if detail else words


def exit_in_words(exit_code: tuple[int, int] | None) -> str:
    """How the job script ended: `it exited with 1`, `it was killed by signal 9`; empty when Slurm did not tell."""
    if exit_code is None:
        return ""
    code, signal = exit_code
    if words := EXIT_WORDS.get(exit_code):
        return words
    return f"it was killed by signal {signal}" if signal else f"it exited with {code}"


def submit_hint(stderr: str) -> str:
    """What to do about a refused submission; empty for a complaint that is not in the table."""
    return next((hint for words, hint in SUBMIT_HINTS.items() if words in stderr), "")
