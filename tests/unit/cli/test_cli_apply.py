"""`srtctl apply`, and the wait for a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_slurm import SERVING, Bench, job_events

from srtctl.runs.watch import Watch

PREPARE = 'printf "0\\tsandbox-0\\t10.0.0.1\\n1\\tsandbox-1\\t10.0.0.2\\n" > $RUN/state/nodes.tsv\n'


def job_writes(events: str, end: dict[str, object] | None = None) -> str:
    """A stand-in for the job: what it leaves in the run directory."""
    script = PREPARE + f"cat > $RUN/events/job.jsonl <<'EOF'\n{events}EOF\n"
    return script + (f"echo '{json.dumps(end)}' > $RUN/state/end.json\n" if end else "")


FAILED = job_events(
    {"event": "job_started", "job_id": "41"},
    {"event": "exited", "node": 1, "process": "agg-0.1", "part": "sidecar", "code": 1, "last": "RuntimeError: no"},
    {"event": "job_ended", "state": "failed", "exit_code": 1, "cause": "x"},
)
CHECKS_FAILED = job_events(
    {"event": "job_started", "job_id": "41"},
    {"event": "job_ended", "state": "checks_failed", "cause": "rank 1 is silent"},
)


def test_a_submission(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBATCH_PARTITION", "wrong")
    monkeypatch.setenv("VIRTUAL_ENV", "/somewhere")
    result = bench("apply", "demo.yaml")
    assert result.exit_code == 0
    run = bench.runs / "demo-1"
    assert "demo-1: starting" in result.stdout
    assert "srtctl cancel demo-1" in result.stdout
    assert "submitted demo-1, job 41" in result.stderr
    assert bench.asked("sbatch.argv") == f"--parsable {run}/job.sbatch\n"
    env = dict(line.split("=", 1) for line in bench.asked("sbatch.env").splitlines() if "=" in line)
    assert env["SLURM_CONF"] == f"{bench.fake}/slurm.conf"
    assert not {"SBATCH_PARTITION", "VIRTUAL_ENV"} & env.keys()
    record = json.loads((run / "run.json").read_text())
    assert (record["name"], record["run"], record["job_id"], record["cluster"]) == ("demo", "demo-1", "41", "fake")
    assert record["recipe"] == str(bench.home / "demo.yaml")
    assert all((run / name).is_dir() for name in ("logs", "events", "state"))


def test_every_submission_gets_its_own_directory(bench: Bench) -> None:
    for _ in range(2):
        assert bench("apply", "demo.yaml").exit_code == 0
    assert sorted(path.name for path in bench.runs.iterdir()) == ["demo-1", "demo-2"]


def test_json_is_one_object(bench: Bench) -> None:
    result = bench("apply", "demo.yaml", "-o", "json")
    data = json.loads(result.stdout)
    assert (data["run"], data["job_id"], data["phase"], data["outcome"]) == ("demo-1", "41", "starting", None)


def test_a_refused_submission_leaves_nothing(bench: Bench) -> None:
    bench.answer("sbatch.error", "sbatch: error: invalid partition specified: gpu\n")
    result = bench("apply", "demo.yaml")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "error: sbatch refused the job: sbatch: error: invalid partition specified: gpu" in result.stderr
    assert "hint: set `slurm.partition`" in result.stderr
    assert list(bench.runs.iterdir()) == []


def test_without_slurm(bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = bench("apply", "demo.yaml")
    assert result.exit_code == 1
    assert "`sbatch` is not on this machine" in result.stderr
    assert "srtctl sandbox up" in result.stderr
    assert list(bench.runs.iterdir()) == []


def test_a_submission_without_an_answer_keeps_its_directory(bench: Bench) -> None:
    (bench.fake / "sbatch").write_text("#!/bin/sh\necho thanks\n")
    result = bench("apply", "demo.yaml")
    assert result.exit_code == 1
    assert "printed no job id" in result.stderr
    assert "demo-1 is kept" in result.stderr
    assert (bench.runs / "demo-1" / "job.sbatch").exists()


def test_an_invalid_recipe_submits_nothing(bench: Bench) -> None:
    (bench.home / "demo.yaml").write_text("schema: 2\nname: demo\ncolour: red\n")
    assert bench("apply", "demo.yaml").exit_code == 2
    assert not bench.runs.exists()


@pytest.mark.parametrize(
    ("on_submit", "queue", "code", "said"),
    [
        (job_writes(SERVING), "RUNNING", 0, "demo-1: serving\n"),
        (
            job_writes(FAILED, {"state": "failed"}),
            "FAILED",
            1,
            "agg-0.1 sidecar on sandbox-1 exited with 1: RuntimeError: no",
        ),
        (
            job_writes(CHECKS_FAILED, {"state": "checks_failed", "cause": "rank 1 is silent"}),
            "FAILED",
            3,
            "rank 1 is silent",
        ),
        (job_writes(FAILED, {"state": "cancelled", "cause": "cancelled"}), "CANCELLED", 1, "demo-1: cancelled\n"),
        (job_writes(SERVING, {"state": "completed", "cause": "done"}), "COMPLETED", 0, "demo-1: completed\n"),
    ],
    ids=["serving", "failed", "checks failed", "cancelled", "completed"],
)
def test_waiting(bench: Bench, on_submit: str, queue: str, code: int, said: str) -> None:
    bench.answer("on_submit", f'{on_submit}echo "41|{queue}|n|None" > {bench.fake}/queue\n')
    result = bench("apply", "demo.yaml", "--wait")
    assert result.exit_code == code, result.output
    assert said in result.stdout


def test_waiting_tells_what_happens(bench: Bench) -> None:
    bench.answer("on_submit", job_writes(SERVING))
    lines = bench("apply", "demo.yaml", "--wait").stderr.splitlines()
    assert any(line.endswith("running on sandbox-0, sandbox-1") for line in lines)
    assert lines[-1].endswith("serving")


WITH_CLIENT = ("--set", "benchmark={type: custom, command: run}")


@pytest.mark.parametrize(
    ("record", "queue", "code", "said"),
    [
        ({"state": "completed", "cause": "benchmark finished"}, "COMPLETED", 0, "demo-1: completed\n"),
        ({"state": "failed", "cause": "the benchmark exited with 7"}, "FAILED", 1, "the benchmark exited with 7"),
    ],
)
def test_waiting_for_a_client(bench: Bench, record: dict[str, str], queue: str, code: int, said: str) -> None:
    bench.answer("on_submit", f'{job_writes(SERVING, record)}echo "41|{queue}|n|None" > {bench.fake}/queue\n')
    result = bench("apply", "demo.yaml", "--wait", *WITH_CLIENT)
    assert (result.exit_code, said in result.stdout) == (code, True), result.output


def test_serving_is_not_the_end_of_a_run_with_a_client(bench: Bench) -> None:
    bench.answer("on_submit", f'{job_writes(SERVING)}echo "41|RUNNING|n|None" > {bench.fake}/queue\n')
    result = bench("apply", "demo.yaml", "--wait", "--timeout", "0", *WITH_CLIENT)
    assert result.exit_code == 1
    assert "demo-1 has not ended after 0 s of waiting" in result.stderr


def test_giving_up_leaves_the_job(bench: Bench) -> None:
    result = bench("apply", "demo.yaml", "--wait", "--timeout", "0")
    assert result.exit_code == 1
    assert "demo-1 does not serve after 0 s" in result.stderr
    assert "srtctl cancel demo-1" in result.stderr
    assert not (bench.fake / "scancel.argv").exists()


def test_ctrl_c_leaves_the_job(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_watch: Watch) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Watch, "look", interrupted)
    result = bench("apply", "demo.yaml", "--wait")
    assert result.exit_code == 130
    assert "srtctl cancel demo-1" in result.stderr
    assert (bench.runs / "demo-1" / "run.json").exists()
    assert not (bench.fake / "scancel.argv").exists()
