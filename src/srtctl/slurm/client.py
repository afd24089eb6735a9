"""Slurm behind one small client: submit, ask, cancel, and run something inside a job.

Rules of slurm-facts: banners (12), no answer is never "done" (28), sacct is optional (29), one batched query (33).
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from srtctl.slurm.command import Completed, Runner, SlurmError, run_command
from srtctl.slurm.parse import (
    SACCT_FORMAT,
    SQUEUE_FORMAT,
    Submitted,
    parse_sacct,
    parse_scontrol,
    parse_squeue,
    parse_submitted,
)
from srtctl.slurm.states import JobState
from srtctl.slurm.words import submit_hint

_INVALID_ID = "Invalid job id"
_GONE = JobState("gone")


class Slurm:
    """`env` is the environment of every command (see `environment.scrubbed`); times are in seconds."""

    def __init__(
        self,
        env: Mapping[str, str],
        runner: Runner = run_command,
        *,
        query_timeout: float = 20.0,
        submit_timeout: float = 120.0,
    ) -> None:
        self._env = dict(env)
        self._runner = runner
        self._query_timeout = query_timeout
        self._submit_timeout = submit_timeout
        self._final: dict[str, JobState] = {}

    def submit(self, script: Path, *, extra: Sequence[str] = ()) -> Submitted:
        """Submit `script`; Slurm knows the job returned. Raises SlurmError, `uncertain` when a job may exist."""
        try:
            done = self._run(["sbatch", "--parsable", *extra, str(script)], self._submit_timeout)
        except subprocess.TimeoutExpired as late:
            message = f"sbatch did not answer within {late.timeout:g} s; the job may or may not be queued"
            raise SlurmError(message, "look with `squeue --me` before submitting again", uncertain=True) from None
        if done.returncode != 0:
            raise SlurmError(f"sbatch refused the job: {done.complaint}", submit_hint(done.stderr))
        submitted = parse_submitted(done.stdout)
        if submitted is None:
            said = done.stdout.strip().splitlines()[-1:] or ["nothing"]
            message = f"sbatch ended well but printed no job id; it printed: {said[0]}"
            raise SlurmError(message, "look with `squeue --me` before submitting again", uncertain=True)
        if submitted.cluster:
            self._env["SLURM_CLUSTERS"] = submitted.cluster
        if self.job(submitted.job_id).kind == "gone":
            message = f"sbatch answered job {submitted.job_id}, but Slurm does not know that job"
            raise SlurmError(
                message, "a wrapper around sbatch may print other numbers: run `type sbatch`", uncertain=True
            )
        return submitted

    def job(self, job_id: str) -> JobState:
        """The state of one job; see `jobs`."""
        return self.jobs([job_id])[job_id]

    def jobs(self, ids: Iterable[str]) -> dict[str, JobState]:
        """A state for each of `ids`, from one squeue query. Never raises: no answer is the kind `unknown`, not `gone`.

        Jobs that ended are looked up further (exit code, how they ended) and then remembered.
        """
        wanted = list(dict.fromkeys(ids))
        asked = [i for i in wanted if i not in self._final]
        if asked:
            found, trouble = self._squeue(asked)
            if trouble:
                found = {i: JobState("unknown", error=trouble) for i in asked}
            ended = [i for i, state in found.items() if state.stage == "ended"]
            self._final |= self._details(ended, found)
            return {i: self._final.get(i) or found[i] for i in wanted}
        return {i: self._final[i] for i in wanted}

    def cancel(self, job_id: str, *, script_only: bool = False) -> None:
        """Ask Slurm to end the job; `script_only`: a TERM to its batch script alone, which then ends everything in order.

        A job that ended already is no error. Raises SlurmError.
        """
        how = ["--batch", "--signal=TERM"] if script_only else []
        try:
            done = self._run(["scancel", *how, job_id], self._query_timeout)
        except subprocess.TimeoutExpired as late:
            raise SlurmError(
                f"scancel did not answer within {late.timeout:g} s",
                "Slurm's controller may be down; try again",
                uncertain=True,
            ) from None
        if (
            done.returncode != 0
            and _INVALID_ID not in done.stderr
            and "already completing or completed" not in done.stderr
        ):
            raise SlurmError(f"scancel could not cancel job {job_id}: {done.complaint}")

    def srun_in_job(
        self, job_id: str, argv: Sequence[str], *, node: str, chdir: Path, timeout: float | None = None
    ) -> Completed:
        """Run `argv` as one task on `node` inside the running job; returns how it ended. Raises SlurmError."""
        step = ["srun", f"--jobid={job_id}", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={node}"]
        step += ["--input=none", "--unbuffered", f"--chdir={chdir}", "--job-name=srtctl-check"]
        try:
            return self._run([*step, *argv], timeout)
        except subprocess.TimeoutExpired as late:
            raise SlurmError(f"the step on {node} did not end within {late.timeout:g} s and was stopped") from None

    def _squeue(self, ids: Sequence[str]) -> tuple[dict[str, JobState], str]:
        """States of `ids`, or why there is no answer."""
        argv = ["squeue", "--noheader", "--states=all", f"--jobs={','.join(ids)}", f"--format={SQUEUE_FORMAT}"]
        try:
            done = self._run(argv, self._query_timeout)
        except subprocess.TimeoutExpired as late:
            return {}, f"squeue did not answer within {late.timeout:g} s"
        except SlurmError as error:
            return {}, error.message
        if done.returncode == 0:
            rows = parse_squeue(done.stdout)
            return {i: rows.get(i, _GONE) for i in ids}, ""
        if _INVALID_ID not in done.stderr:
            return {}, f"squeue failed: {done.complaint}"
        if len(ids) == 1:
            return {ids[0]: _GONE}, ""
        # One id made it refuse the whole list: ask for each.
        found: dict[str, JobState] = {}
        for job_id in ids:
            one, trouble = self._squeue([job_id])
            if trouble:
                return {}, trouble
            found |= one
        return found, ""

    def _details(self, ended: Sequence[str], found: Mapping[str, JobState]) -> dict[str, JobState]:
        """What the accounting, or else the controller, still knows of jobs that squeue reports ended or not at all."""
        if not ended:
            return {}
        argv = [
            "sacct",
            "--parsable2",
            "--noheader",
            "--allocations",
            f"--jobs={','.join(ended)}",
            f"--format={SACCT_FORMAT}",
        ]
        done = self._try(argv)
        rows = parse_sacct(done.stdout) if done and done.returncode == 0 else {}
        final: dict[str, JobState] = {}
        for job_id in ended:
            row = rows.get(job_id)
            if row is None and found[job_id].kind == "known":
                shown = self._try(["scontrol", "--oneliner", "show", "job", job_id])
                row = parse_scontrol(shown.stdout, job_id) if shown and shown.returncode == 0 else None
            # The accounting lags behind: an older "RUNNING" there does not undo what squeue saw.
            final[job_id] = row if row and row.stage == "ended" else found[job_id]
        return final

    def _try(self, argv: Sequence[str]) -> Completed | None:
        try:
            return self._run(argv, self._query_timeout)
        except (subprocess.TimeoutExpired, SlurmError):
            return None

    def _run(self, argv: Sequence[str], timeout: float | None) -> Completed:
        # squeue itself retries for a minute before it says so.
        if (conf := self._env.get("SLURM_CONF")) and not Path(conf).exists():
            raise SlurmError(f"Slurm's configuration {conf} does not exist", "is the cluster (or the sandbox) up?")
        try:
            return self._runner(argv, env=self._env, timeout=timeout)
        except FileNotFoundError:
            raise SlurmError(
                f"`{argv[0]}` is not on this machine",
                "run srtctl on a login node of the cluster, or try it here with `srtctl sandbox up`",
            ) from None
