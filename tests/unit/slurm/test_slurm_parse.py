"""Parsers, on outputs recorded from Slurm 22.05.8 (marked) and on the odd ones that sites produce."""

from __future__ import annotations

import pytest

from srtctl.slurm.parse import Submitted, parse_exit_code, parse_sacct, parse_scontrol, parse_squeue, parse_submitted
from srtctl.slurm.states import STAGES, JobState

# Recorded; shortened in the middle.
SCONTROL_0_53 = (
    "JobId=2 JobName=three.sh UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=4294901758 Nice=0 Account=(null) "
    "QOS=(null) JobState=FAILED Reason=JobLaunchFailure Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 "
    "ExitCode=0:53 RunTime=00:00:00 TimeLimit=UNLIMITED ReqNodeList=(null) ExcNodeList=(null) NodeList=n1 BatchHost=n1 "
    "Command=/tmp/w/three.sh WorkDir=/tmp/w StdErr=/nonexistent/2.log StdIn=/dev/null Power= \n"
)
SCONTROL_PENDING = (
    "JobId=4 JobName=ok.sh JobState=PENDING Reason=Resources ExitCode=0:0 ReqNodeList=(null) NodeList=(null)\n"
)


@pytest.mark.parametrize(
    ("stdout", "expected"),
    [
        ("1\n", Submitted("1")),  # recorded
        ("4711;gpu\n", Submitted("4711", "gpu")),
        ("* Welcome to the cluster *\nYou have 12 jobs\n88\n", Submitted("88")),
        ("88\nRemember: maintenance on 2026-12-01\n", Submitted("88")),
        ("5\n88\n", Submitted("88")),
        ("  88  \r\n", Submitted("88")),
        ("Submitted batch job 6\n", None),  # recorded without --parsable
        ("88 jobs are waiting\n", None),
        ("", None),
    ],
)
def test_submitted(stdout: str, expected: Submitted | None) -> None:
    assert parse_submitted(stdout) == expected


@pytest.mark.parametrize(
    ("stdout", "expected"),
    [
        ("", {}),
        ("1|RUNNING|n1|None\n", {"1": JobState("known", "RUNNING", "None", "n1")}),
        (
            "2|FAILED|n1|JobLaunchFailure\n4|PENDING||Resources\n",
            {
                "2": JobState("known", "FAILED", "JobLaunchFailure", "n1"),
                "4": JobState("known", "PENDING", "Resources", ""),
            },
        ),
        # a heterogeneous job: the first component speaks
        (
            "7+0|RUNNING|n1|None\n7+1|PENDING||Resources\n",
            {"7": JobState("known", "RUNNING", "None", "n1")},
        ),
        ("7_3|RUNNING|n1|None\n", {"7": JobState("known", "RUNNING", "None", "n1")}),
        # reasons hold anything, also the separator
        (
            "9|PENDING||ReqNodeNotAvail, UnavailableNodes:n[1-2]|x\n",
            {"9": JobState("known", "PENDING", "ReqNodeNotAvail, UnavailableNodes:n[1-2]|x", "")},
        ),
        # with SLURM_CLUSTERS a header comes in spite of --noheader
        ("CLUSTER: gpu\n1|RUNNING|n1|None\n", {"1": JobState("known", "RUNNING", "None", "n1")}),
        ("Welcome!\n| all | fine | today |\n1|RUNNING|n1|None\n", {"1": JobState("known", "RUNNING", "None", "n1")}),
        ("1||n1|None\n1|\n", {}),
    ],
)
def test_squeue(stdout: str, expected: dict[str, JobState]) -> None:
    assert parse_squeue(stdout) == expected


@pytest.mark.parametrize(
    ("stdout", "expected"),
    [
        ("", {}),
        ("32|COMPLETED|0:0|n[1-2]\n", {"32": JobState("known", "COMPLETED", "", "n[1-2]", (0, 0))}),
        (
            "32|CANCELLED by 1000|0:0|None assigned\n",
            {"32": JobState("known", "CANCELLED", "", "", (0, 0), by="1000")},
        ),
        ("32|CANCELLED+|0:15|n1\n", {"32": JobState("known", "CANCELLED", "", "n1", (0, 15))}),
        ("32|OUT_OF_ME+|0:125|n1\n", {"32": JobState("known", "OUT_OF_MEMORY", "", "n1", (0, 125))}),
        # requeued: the later line counts
        (
            "32|NODE_FAIL|1:0|n1\n32|COMPLETED|0:0|n2\n",
            {"32": JobState("known", "COMPLETED", "", "n2", (0, 0))},
        ),
        ("32.batch|FAILED|1:0|n1\nJobIDRaw|State|ExitCode|NodeList\n", {}),
    ],
)
def test_sacct(stdout: str, expected: dict[str, JobState]) -> None:
    assert parse_sacct(stdout) == expected


@pytest.mark.parametrize(
    ("stdout", "job_id", "expected"),
    [
        (SCONTROL_0_53, "2", JobState("known", "FAILED", "JobLaunchFailure", "n1", (0, 53))),
        (SCONTROL_PENDING, "4", JobState("known", "PENDING", "Resources", "", (0, 0))),
        (SCONTROL_PENDING + SCONTROL_0_53, "2", JobState("known", "FAILED", "JobLaunchFailure", "n1", (0, 53))),
        (SCONTROL_0_53, "22", None),
        ("No jobs in the system\n", "2", None),
    ],
)
def test_scontrol(stdout: str, job_id: str, expected: JobState | None) -> None:
    assert parse_scontrol(stdout, job_id) == expected


@pytest.mark.parametrize(("text", "expected"), [("0:53", (0, 53)), (" 1:0 ", (1, 0)), ("", None), ("1", None)])
def test_exit_code(text: str, expected: tuple[int, int] | None) -> None:
    assert parse_exit_code(text) == expected


@pytest.mark.parametrize(
    ("state", "stage"),
    [
        (JobState("known", "PENDING"), "waiting"),
        (JobState("known", "RUNNING"), "active"),
        (JobState("known", "COMPLETING"), "ending"),
        (JobState("known", "NODE_FAIL"), "ended"),
        (JobState("known", "A_STATE_OF_SLURM_99"), "active"),
        (JobState("gone"), "ended"),
        (JobState("unknown"), None),
    ],
)
def test_stage(state: JobState, stage: str | None) -> None:
    assert state.stage == stage


def test_every_state_is_one_word_in_capitals() -> None:
    assert all(name.isupper() and name.replace("_", "").isalpha() for name in STAGES)
