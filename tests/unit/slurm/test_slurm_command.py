"""Running real processes."""

from __future__ import annotations

import os
import subprocess

import pytest

from srtctl.slurm.command import run_command

pytestmark = pytest.mark.process


def test_output_and_exit_code() -> None:
    done = run_command(["sh", "-c", "echo out; echo err >&2; exit 7"], env=os.environ, timeout=30)
    assert (done.returncode, done.stdout, done.stderr, done.complaint) == (7, "out\n", "err\n", "err")


def test_stdin_is_empty_and_the_environment_exactly_ours() -> None:
    done = run_command(["/bin/sh", "-c", "cat; echo $A-$HOME"], env={"A": "a"}, timeout=30)
    assert done.stdout == "a-\n"


def test_a_deadline_ends_a_wrapper_and_its_children() -> None:
    """The child keeps the pipes open: without killing the group this would wait for it."""
    with pytest.raises(subprocess.TimeoutExpired):
        run_command(["sh", "-c", "sleep 600 & wait"], env=os.environ, timeout=0.3)


def test_a_missing_program() -> None:
    with pytest.raises(FileNotFoundError):
        run_command(["/nowhere/squeue"], env={}, timeout=1)
