"""Running one command with a deadline, and what is raised when Slurm lets us down."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Completed:
    """A command that ended: its exit code (negative: the signal) and what it wrote."""

    returncode: int
    stdout: str
    stderr: str

    @property
    def complaint(self) -> str:
        """The last thing it said on stderr, else its exit code, as one line."""
        lines = [line.strip() for line in self.stderr.splitlines() if line.strip()]
        return lines[-1] if lines else f"exit code {self.returncode}"


class Runner(Protocol):
    """Runs `argv` to its end. Raises FileNotFoundError (no such program) or subprocess.TimeoutExpired."""

    def __call__(self, argv: Sequence[str], *, env: Mapping[str, str], timeout: float | None) -> Completed: ...


class SlurmError(Exception):
    """Slurm did not do what was asked: a sentence, and what to do. `uncertain`: it may have been done all the same."""

    def __init__(self, message: str, hint: str = "", *, uncertain: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.uncertain = uncertain


def run_command(argv: Sequence[str], *, env: Mapping[str, str], timeout: float | None) -> Completed:
    """Run `argv` in a process group of its own and return what it wrote.

    The whole group is killed at the deadline or on an interrupt: Slurm commands are often wrapped in site scripts,
    whose children would otherwise keep our pipes open for ever.
    """
    with subprocess.Popen(
        argv,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise
    return Completed(process.returncode, stdout, stderr)
