"""`srtctl status`, `logs`, `check` and `cancel` on a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_slurm import Bench

CHECKS = {
    "version": 1,
    "verdict": "pass",
    "checks": [
        {
            "name": "kv_events",
            "verdict": "pass",
            "on_failure": "fail",
            "targets": [{"worker": "agg-0", "dp_rank": 1, "verdict": "pass", "message": "12 events on port 5201"}],
        }
    ],
}


# ---------------------------------------------------------------------------------------------------- status


def test_no_runs(bench: Bench) -> None:
    result = bench("status")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "srtctl apply RECIPE" in result.stderr


def test_all_runs(bench: Bench, serving: Path) -> None:
    result = bench("status")
    assert result.exit_code == 0
    header, line = result.stdout.splitlines()
    assert header.split() == ["RUN", "STATE", "JOB", "SUBMITTED"]
    assert line.split()[:3] == ["demo-1", "serving", "41"]
    assert line.endswith("http://10.0.0.1:8000")
    (row,) = json.loads(bench("status", "-o", "json").stdout)["runs"]
    assert (row["run"], row["phase"]) == ("demo-1", "serving")


@pytest.mark.parametrize("ref", ["demo-1", "demo", "41", "runs/demo-1"])
def test_one_run(bench: Bench, serving: Path, ref: str) -> None:
    (serving / "checks.json").write_text(json.dumps(CHECKS))
    result = bench("status", ref)
    assert result.exit_code == 0
    for text in (
        "demo-1: serving",
        "http://10.0.0.1:8000",
        "sandbox-0  etcd: not started",
        "agg-0 rank 1: 12 events on port 5201",
        "srtctl check demo-1",
    ):
        assert text in result.stdout
    data = json.loads(bench("status", ref, "-o", "json").stdout)
    assert (data["run"], data["phase"], data["endpoints"]) == ("demo-1", "serving", ["http://10.0.0.1:8000"])


def test_a_path_needs_no_profile(bench: Bench, serving: Path) -> None:
    (bench.home / "srtslurm.yaml").write_text(": broken")
    assert "serving" in bench("status", str(serving)).stdout


def test_slurm_that_does_not_answer_ends_nothing(bench: Bench, serving: Path) -> None:
    bench.answer("squeue.error", "squeue: error: Unable to contact slurm controller\n")
    result = bench("status", "demo")
    assert result.exit_code == 0
    assert "demo-1: serving (as last reported)" in result.stdout
    assert "Unable to contact slurm controller" in result.stdout


@pytest.mark.usefixtures("serving")
def test_a_job_that_died_silently(bench: Bench) -> None:
    bench.answer("queue", "41|NODE_FAIL|sandbox-[0-1]|None\n")
    result = bench("status", "demo")
    assert result.stdout.splitlines()[:2] == [
        "demo-1: node failure",
        "  cause     Slurm lost a node of the job (sandbox-[0-1])",
    ]


def test_watching_until_the_end(bench: Bench, serving: Path) -> None:
    bench.answer("queue", "41|TIMEOUT|sandbox-[0-1]|None\n")
    (serving / "state" / "end.json").write_text('{"state": "time_limit", "cause": "served until its time limit"}')
    result = bench("status", "demo", "-w")
    assert "time limit reached" in result.stderr
    assert "served until its time limit" in result.stdout


@pytest.mark.parametrize("verb", ["status", "logs", "check", "cancel"])
def test_an_unknown_run(bench: Bench, run: Path, verb: str) -> None:
    result = bench(verb, "dmo")
    assert result.exit_code == 2
    assert "error: no run `dmo`" in result.stderr
    assert "did you mean `demo`?" in result.stderr


# ---------------------------------------------------------------------------------------------------- logs


@pytest.fixture
def logged(serving: Path) -> Path:
    for name, text in {
        "job.41.log": "one\ntwo\nthree\n",
        "agg-0.1.engine.log": "engine\n",
        "agg-0.1.sidecar.log": "sidecar\n",
        "etcd.log": "etcd\n",
    }.items():
        (serving / "logs" / name).write_text(text)
    return serving


@pytest.mark.usefixtures("logged")
@pytest.mark.parametrize(
    ("argv", "stdout"),
    [
        ([], "one\ntwo\nthree\n"),
        (["--tail", "1"], "three\n"),
        (["etcd"], "etcd\n"),
        (["agg-0.1.sidecar"], "sidecar\n"),
        (["agg-0.1"], "==> agg-0.1.engine.log <==\nengine\n==> agg-0.1.sidecar.log <==\nsidecar\n"),
        (["agg-0"], "==> agg-0.1.engine.log <==\nengine\n==> agg-0.1.sidecar.log <==\nsidecar\n"),
    ],
)
def test_logs(bench: Bench, argv: list[str], stdout: str) -> None:
    result = bench("logs", "demo", *argv)
    assert (result.exit_code, result.stdout) == (0, stdout)


@pytest.mark.usefixtures("logged")
def test_logs_of_a_process_that_does_not_exist(bench: Bench) -> None:
    result = bench("logs", "demo", "decode-7")
    assert result.exit_code == 2
    assert "error: demo-1 has no process `decode-7`" in result.stderr
    assert "agg-0.1.sidecar" in result.stderr


@pytest.mark.usefixtures("run")
def test_logs_that_are_not_there_yet(bench: Bench) -> None:
    result = bench("logs", "demo")
    assert result.exit_code == 1
    assert "demo-1 has not written job.41.log (yet)" in result.stderr


def test_following_until_the_run_ended(bench: Bench, logged: Path) -> None:
    """Slurm is asked only after the first part was printed; from then on the job writes more, and ends."""
    end = """echo '{"state": "completed", "cause": ""}'"""
    bench.answer(
        "on_squeue",
        f"""
        [ ! -e {logged}/state/end.json ] || exit 0
        echo four >> {logged}/logs/job.41.log
        echo "41|COMPLETED|n|None" > {bench.fake}/queue
        {end} > {logged}/state/end.json
        """,
    )
    result = bench("logs", "demo", "-f", "--tail", "1")
    assert (result.exit_code, result.stdout) == (0, "three\nfour\n")


# ---------------------------------------------------------------------------------------------------- check


def checks_program(bench: Bench, code: int, verdict: str = "pass") -> None:
    """The program that `runtime_python` names: writes checks.json where it is told to and exits with `code`."""
    checks = json.dumps(CHECKS | {"verdict": verdict})
    body = f"""#!/bin/sh
echo "PYTHONPATH=$PYTHONPATH $*" > {bench.fake}/checks.argv
while [ "$1" != --out ]; do shift; done
echo '{checks}' > "$2"
echo "some detail" >&2
exit {code}
"""
    (bench.fake / "python").write_text(body)
    (bench.fake / "python").chmod(0o755)


@pytest.mark.parametrize(("code", "verdict"), [(0, "pass"), (3, "fail")])
def test_check(bench: Bench, serving: Path, code: int, verdict: str) -> None:
    checks_program(bench, code, verdict)
    result = bench("check", "demo", "--only", "kv_events")
    assert result.exit_code == code, result.output
    assert "kv_events  pass" in result.stdout
    assert "agg-0 rank 1: 12 events on port 5201" in result.stdout
    assert f"verdict: {verdict}" in result.stdout
    assert "--jobid=41 --overlap" in bench.asked("srun.argv")
    assert "--nodelist=sandbox-0" in bench.asked("srun.argv")
    assert bench.asked("checks.argv") == (
        f"PYTHONPATH={serving}/lib -m srtctl.checks --plan {serving}/plan.json --nodes {serving}/state/nodes.tsv "
        f"--out {serving}/checks-again.json --only kv_events\n"
    )


@pytest.mark.usefixtures("serving")
def test_check_as_data(bench: Bench) -> None:
    checks_program(bench, 0)
    assert json.loads(bench("check", "demo", "-o", "json").stdout) == CHECKS


@pytest.mark.usefixtures("serving")
def test_checks_that_cannot_run(bench: Bench) -> None:
    checks_program(bench, 2)
    result = bench("check", "demo")
    assert result.exit_code == 1
    assert "the checks could not run (exit code 2)" in result.stderr
    assert "some detail" in result.stderr


@pytest.mark.usefixtures("serving")
@pytest.mark.parametrize(
    ("argv", "queue", "code", "said"),
    [
        (["--only", "kv_event"], "41|RUNNING|n|None\n", 2, "did you mean `kv_events`?"),
        ([], "41|PENDING||Priority\n", 2, "demo-1 is not serving yet: queued"),
        ([], "41|CANCELLED|n|None\n", 2, "demo-1 is not running: cancelled"),
        ([], "41|COMPLETING|n|None\n", 2, "demo-1 is stopping"),
        ([], "", 2, "demo-1 is not running: lost"),
    ],
)
def test_check_refuses(bench: Bench, argv: list[str], queue: str, code: int, said: str) -> None:
    bench.answer("queue", queue)
    result = bench("check", "demo", *argv)
    assert result.exit_code == code
    assert said in result.stderr
    assert not (bench.fake / "srun.argv").exists()


@pytest.mark.usefixtures("run")
def test_check_before_it_serves(bench: Bench) -> None:
    result = bench("check", "demo")
    assert result.exit_code == 2
    assert "demo-1 is not serving yet: starting" in result.stderr


@pytest.mark.usefixtures("serving")
def test_check_when_slurm_does_not_answer(bench: Bench) -> None:
    bench.answer("squeue.error", "squeue: error: no controller\n")
    result = bench("check", "demo")
    assert result.exit_code == 1
    assert "cannot tell whether demo-1 still runs" in result.stderr


def test_what_was_never_submitted(bench: Bench, run: Path) -> None:
    (run / "run.json").unlink()
    for verb in ("check", "cancel", "logs"):
        result = bench(verb, "demo-1")
        assert result.exit_code == 2
        assert "demo-1 was never submitted" in result.stderr


# ---------------------------------------------------------------------------------------------------- cancel


@pytest.mark.usefixtures("serving")
def test_cancel(bench: Bench) -> None:
    result = bench("cancel", "demo")
    assert result.exit_code == 0
    assert bench.asked("scancel.argv") == "--batch --signal=TERM 41\n"
    assert "asked Slurm to cancel demo-1, job 41" in result.stderr


@pytest.mark.usefixtures("serving")
def test_cancel_at_once(bench: Bench) -> None:
    assert bench("cancel", "demo", "--now").exit_code == 0
    assert bench.asked("scancel.argv") == "41\n"


def test_cancel_what_is_stopping(bench: Bench, serving: Path) -> None:
    (serving / "state" / "end.json").write_text('{"state": "cancelled", "exit_code": 0, "cause": "cancelled"}')
    assert bench("cancel", "demo").exit_code == 0
    assert bench.asked("scancel.argv") == "41\n"


def test_cancel_what_has_not_started(bench: Bench, serving: Path) -> None:
    (serving / "events" / "job.jsonl").unlink()
    assert bench("cancel", "demo").exit_code == 0
    assert bench.asked("scancel.argv") == "41\n"


def test_cancel_and_wait(bench: Bench, serving: Path) -> None:
    end = serving / "state" / "end.json"
    bench.answer("on_cancel", f"""echo '{{"state": "cancelled", "exit_code": 0, "cause": "cancelled"}}' > {end}""")
    result = bench("cancel", "demo", "--wait")
    assert result.exit_code == 0
    assert result.stderr.splitlines()[-1] == "demo-1: cancelled"


def test_a_job_that_does_not_end(bench: Bench, serving: Path) -> None:
    (serving / "events" / "node-1.jsonl").write_text(
        '{"ts": 4000000001, "node": 1, "event": "started", "process": "agg-0.1", "part": "engine"}\n'
    )
    (bench.fake / "scancel").write_text("#!/bin/sh\n")
    result = bench("cancel", "demo", "--wait", "--timeout", "0")
    assert result.exit_code == 1
    assert "demo-1 has not ended after 0 s: Slurm reports RUNNING; left: agg-0.1 engine" in result.stderr


@pytest.mark.usefixtures("serving")
def test_cancel_what_ended(bench: Bench) -> None:
    bench.answer("queue", "41|COMPLETED|n|None\n")
    result = bench("cancel", "demo")
    assert result.exit_code == 0
    assert "demo-1 (job 41) ended already" in result.stderr
    assert not (bench.fake / "scancel.argv").exists()
