"""The client against a scripted Slurm: every odd answer, no process started."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from srtctl.slurm.client import Slurm
from srtctl.slurm.command import Completed, SlurmError
from srtctl.slurm.parse import Submitted
from srtctl.slurm.states import JobState

INVALID = "slurm_load_jobs error: Invalid job id specified\n"
Answer = Completed | BaseException


class Script:
    """Answers by the command's name, in turn; the last answer repeats. Other commands fail."""

    def __init__(self, **answers: Answer | list[Answer]) -> None:
        self._answers = {name: value if isinstance(value, list) else [value] for name, value in answers.items()}
        self.calls: list[list[str]] = []
        self.envs: list[Mapping[str, str]] = []

    def __call__(self, argv: Sequence[str], *, env: Mapping[str, str], timeout: float | None) -> Completed:
        assert timeout is None or timeout > 0
        self.calls.append(list(argv))
        self.envs.append(dict(env))
        queue = self._answers.get(argv[0], [bad("Slurm accounting storage is disabled")])
        answer = queue.pop(0) if len(queue) > 1 else queue[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def names(self) -> list[str]:
        return [call[0] for call in self.calls]


def out(text: str) -> Completed:
    return Completed(0, text, "")


def bad(stderr: str, code: int = 1) -> Completed:
    return Completed(code, "", stderr)


HANGS = subprocess.TimeoutExpired("squeue", 20)


@pytest.mark.parametrize(
    ("squeue", "expected"),
    [
        (out("5|RUNNING|n1|None\n"), JobState("known", "RUNNING", "None", "n1")),
        (out("5|PENDING||Priority\n"), JobState("known", "PENDING", "Priority")),
        (out(""), JobState("gone")),  # several unknown ids give rc 0 and nothing
        (bad(INVALID), JobState("gone")),
        (bad("slurm_load_jobs error: Unable to contact slurm controller (connect failure)"), None),
        (bad("", 137), None),
        (HANGS, None),
        (FileNotFoundError(), None),
    ],
)
def test_a_job_is_known_gone_or_unknown(squeue: Answer, expected: JobState | None) -> None:
    state = Slurm({}, Script(squeue=squeue)).job("5")
    if expected is None:
        assert state.kind == "unknown"
        assert state.error
    else:
        assert state == expected


def test_unknown_names_the_reason() -> None:
    hung = Slurm({}, Script(squeue=HANGS)).job("5")
    assert hung.error == "squeue did not answer within 20 s"
    failed = Slurm({}, Script(squeue=bad("a\nUnable to contact slurm controller\n\n"))).job("5")
    assert failed.error == "squeue failed: Unable to contact slurm controller"


def test_a_missing_configuration_is_said_at_once() -> None:
    script = Script()
    state = Slurm({"SLURM_CONF": "/nowhere/slurm.conf"}, script).job("5")
    assert state == JobState("unknown", error="Slurm's configuration /nowhere/slurm.conf does not exist")
    assert script.calls == []


def test_many_jobs_are_one_query() -> None:
    script = Script(squeue=out("5|RUNNING|n1|None\n6|PENDING||Priority\n"))
    states = Slurm({}, script).jobs(["5", "6", "5"])
    assert [s.state for s in states.values()] == ["RUNNING", "PENDING"]
    assert len(script.calls) == 1
    assert "--jobs=5,6" in script.calls[0]


def test_one_bad_id_does_not_hide_the_others() -> None:
    script = Script(squeue=[bad(INVALID), out("5|RUNNING|n1|None\n"), bad(INVALID)])
    states = Slurm({}, script).jobs(["5", "99"])
    assert states["5"].state == "RUNNING"
    assert states["99"].kind == "gone"


@pytest.mark.parametrize(
    ("sacct", "scontrol", "expected"),
    [
        (out("5|FAILED|3:0|n1\n"), bad("unused"), JobState("known", "FAILED", "", "n1", (3, 0))),
        (
            bad("Slurm accounting storage is disabled"),
            out("JobId=5 JobState=FAILED Reason=NonZeroExitCode ExitCode=3:0 NodeList=n1\n"),
            JobState("known", "FAILED", "NonZeroExitCode", "n1", (3, 0)),
        ),
        # the accounting lags behind
        (out("5|RUNNING|0:0|n1\n"), bad("unused"), JobState("known", "FAILED", "NonZeroExitCode", "n1")),
        (bad("x"), bad(INVALID), JobState("known", "FAILED", "NonZeroExitCode", "n1")),
        (HANGS, HANGS, JobState("known", "FAILED", "NonZeroExitCode", "n1")),
    ],
)
def test_how_a_job_ended(sacct: Answer, scontrol: Answer, expected: JobState) -> None:
    script = Script(squeue=out("5|FAILED|n1|NonZeroExitCode\n"), sacct=sacct, scontrol=scontrol)
    assert Slurm({}, script).job("5") == expected


def test_a_forgotten_job_is_looked_up_in_the_accounting() -> None:
    script = Script(squeue=out(""), sacct=out("5|CANCELLED by 1000|0:0|n1\n"))
    assert Slurm({}, script).job("5") == JobState("known", "CANCELLED", "", "n1", (0, 0), by="1000")


def test_final_states_are_remembered_and_others_asked_again() -> None:
    script = Script(
        squeue=[out("5|COMPLETED|n1|None\n6|RUNNING|n2|None\n"), out("6|RUNNING|n2|None\n")],
        sacct=out("5|COMPLETED|0:0|n1\n"),
    )
    slurm = Slurm({}, script)
    slurm.jobs(["5", "6"])
    slurm.jobs(["5", "6"])
    slurm.job("5")
    assert script.names() == ["squeue", "sacct", "squeue"]
    assert "--jobs=6" in script.calls[-1]


def test_an_unknown_answer_is_never_remembered() -> None:
    slurm = Slurm({}, Script(squeue=[HANGS, out("5|RUNNING|n1|None\n")]))
    assert [slurm.job("5").kind, slurm.job("5").kind] == ["unknown", "known"]


def test_submit_verifies_the_job() -> None:
    script = Script(sbatch=out("Welcome\n5\n"), squeue=out("5|PENDING||Priority\n"))
    assert Slurm({}, script).submit(Path("/run/job.sbatch"), extra=["--hold"]) == Submitted("5")
    assert script.calls[0] == ["sbatch", "--parsable", "--hold", "/run/job.sbatch"]
    assert script.names() == ["sbatch", "squeue"]


def test_a_job_on_another_cluster_is_asked_for_there() -> None:
    script = Script(sbatch=out("5;gpu\n"), squeue=out("CLUSTER: gpu\n5|PENDING||Priority\n"))
    assert Slurm({}, script).submit(Path("job.sbatch")) == Submitted("5", "gpu")
    assert [env.get("SLURM_CLUSTERS") for env in script.envs] == [None, "gpu"]


@pytest.mark.parametrize(
    ("answers", "uncertain", "message"),
    [
        ({"sbatch": bad("sbatch: error: invalid partition specified: x")}, False, "invalid partition specified: x"),
        ({"sbatch": FileNotFoundError()}, False, "`sbatch` is not on this machine"),
        ({"sbatch": HANGS}, True, "may or may not be queued"),
        ({"sbatch": out("Thank you!\n")}, True, "printed no job id; it printed: Thank you!"),
        ({"sbatch": out("")}, True, "it printed: nothing"),
        ({"sbatch": out("5\n"), "squeue": bad(INVALID)}, True, "Slurm does not know that job"),
    ],
)
def test_a_submission_that_fails(answers: dict[str, Answer], uncertain: bool, message: str) -> None:
    with pytest.raises(SlurmError, match=message) as caught:
        Slurm({}, Script(**answers)).submit(Path("job.sbatch"))
    assert caught.value.uncertain is uncertain
    assert caught.value.hint


def test_a_silent_squeue_does_not_undo_a_submission() -> None:
    assert Slurm({}, Script(sbatch=out("5\n"), squeue=HANGS)).submit(Path("job.sbatch")) == Submitted("5")


@pytest.mark.parametrize(
    "answer",
    [
        out(""),
        bad("scancel: error: Kill job error on job id 5: Invalid job id specified"),
        bad("scancel: error: Kill job error on job id 5: Job/step already completing or completed"),
    ],
)
def test_cancel(answer: Completed) -> None:
    script = Script(scancel=answer)
    Slurm({}, script).cancel("5")
    assert script.calls == [["scancel", "5"]]
    Slurm({}, script).cancel("5", script_only=True)
    assert script.calls[1:] == [["scancel", "--batch", "--signal=TERM", "5"]]


@pytest.mark.parametrize(
    "answer", [bad("scancel: error: Kill job error on job id 5: Access/permission denied"), HANGS, FileNotFoundError()]
)
def test_a_cancel_that_fails(answer: Answer) -> None:
    with pytest.raises(SlurmError):
        Slurm({}, Script(scancel=answer)).cancel("5")


def test_a_step_in_a_job() -> None:
    script = Script(srun=Completed(3, "said", "warned"))
    done = Slurm({}, script).srun_in_job("5", ["python3", "-m", "x"], node="n1", chdir=Path("/run"))
    assert done == Completed(3, "said", "warned")
    (argv,) = script.calls
    assert argv[-3:] == ["python3", "-m", "x"]
    assert {"--jobid=5", "--overlap", "--nodes=1", "--ntasks=1", "--nodelist=n1", "--input=none"} < set(argv)
