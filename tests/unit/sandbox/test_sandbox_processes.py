"""Telling a sandbox's processes from all others, and ending exactly those."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from srtctl.sandbox import daemons, processes
from srtctl.sandbox.daemons import Daemon
from srtctl.sandbox.errors import SandboxError
from srtctl.sandbox.hostlock import host_lock
from srtctl.sandbox.layout import Layout
from srtctl.sandbox.processes import MARKER, Belonging, Process

SLEEP = ["sleep", "600"]


@pytest.fixture
def layout(tmp_path: Path) -> Iterator[Layout]:
    layout = Layout(tmp_path)
    layout.pids.mkdir()
    layout.logs.mkdir()
    yield layout
    processes.end((p for d in daemons.recorded(layout) if (p := d.running())), signal.SIGKILL, 5)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(SLEEP) as process:
        yield process
        process.kill()


def members(state: Path) -> list[Process]:
    return processes.members(Belonging(frozenset(), str(state), f"{state}/slurm.conf"))


def test_a_daemon_is_found_again_and_ended(layout: Layout) -> None:
    daemon = daemons.start("slurmd-sandbox-0", SLEEP, {"PATH": os.defpath}, layout)
    assert daemons.recorded(layout) == [daemon]
    running = daemon.running()
    assert running
    assert os.getsid(daemon.pid) == daemon.pid
    assert processes.end([running], signal.SIGTERM, 10) == []
    assert daemon.running() is None
    assert daemons.first_dead([daemon]) == daemon


def test_a_daemon_of_another_boot_or_a_reused_pid_is_not_running(layout: Layout) -> None:
    daemon = daemons.start("munged", SLEEP, {"PATH": os.defpath}, layout)
    assert Daemon("munged", daemon.pid, daemon.started, "another-boot").running() is None
    assert Daemon("munged", daemon.pid, daemon.started - 1, daemon.boot).running() is None


def test_daemons_come_in_the_order_of_their_numbers(layout: Layout) -> None:
    for name in ("slurmd-sandbox-10", "slurmd-sandbox-9", "munged", "slurmctld"):
        (layout.pids / name).write_text("1 2 boot\n")
    (layout.pids / "slurmd-sandbox-11").write_text("1 2")  # cut short by a crash
    names = [daemon.name for daemon in daemons.recorded(layout)]
    assert names == ["munged", "slurmctld", "slurmd-sandbox-9", "slurmd-sandbox-10"]


def test_what_a_dead_daemon_said_is_kept(layout: Layout) -> None:
    argv = ["/bin/sh", "-c", 'read _; echo "no such plugin"; exit 1']
    try:
        daemon = daemons.start("slurmctld", argv, {}, layout)
        os.waitpid(daemon.pid, 0)
    except SandboxError:
        pass  # so fast that it was gone before it could be recorded
    assert "no such plugin" in daemons.ended("slurmctld", layout).detail
    assert daemons.log_tail("munged", layout) == ""


def test_a_process_with_another_start_time_is_left_alone(sleeper: subprocess.Popen[bytes]) -> None:
    now = processes.read(sleeper.pid)
    assert now
    assert processes.end([Process(now.pid, now.parent, now.started + 1)], signal.SIGKILL, 5) == []
    assert sleeper.poll() is None


def test_end_reports_who_lives_on(sleeper: subprocess.Popen[bytes]) -> None:
    now = processes.read(sleeper.pid)
    assert now
    assert processes.end([now], signal.SIGCONT, 0.01) == [now]


@pytest.mark.parametrize(
    ("env", "belongs"),
    [
        ({MARKER: "{state}"}, True),
        ({MARKER: "{state}-2"}, False),
        ({"SLURM_CONF": "{state}/slurm.conf", "SLURMD_NODENAME": "sandbox-0"}, True),
        ({"SLURM_CONF": "{state}/slurm.conf"}, False),  # a user's shell that talks to the sandbox
        ({"SLURM_CONF": "/etc/slurm/slurm.conf", "SLURMD_NODENAME": "n1"}, False),
        ({}, False),
    ],
)
def test_members_by_environment(tmp_path: Path, env: dict[str, str], belongs: bool) -> None:
    filled = {name: value.format(state=tmp_path) for name, value in env.items()}
    script = "import os, sys; sys.stdout.write(str(os.fork())); sys.stdout.flush(); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-S", "-c", script], env=filled, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdout.read(1)  # it runs python: its environment is in place
        try:
            found = [member.pid for member in members(tmp_path)]
            assert (process.pid in found) == belongs
            assert len(found) == (2 if belongs else 0)  # the child comes with its parent
        finally:
            process.stdin.close()
            processes.end((p for p in processes.processes() if p.parent == process.pid), signal.SIGKILL, 5)


def test_the_asking_process_is_never_a_member() -> None:
    everything = processes.members(lambda process: process.pid == os.getppid())
    assert os.getpid() not in [process.pid for process in everything]
    assert os.getppid() not in [process.pid for process in everything]


def test_a_zombie_is_not_a_process() -> None:
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert processes.read(process.pid) is None


def test_host_lock_excludes_and_is_released(tmp_path: Path) -> None:
    subject = f"the sandbox {tmp_path}"
    with host_lock(subject), pytest.raises(SandboxError, match="at work on"), host_lock(subject):
        pass
    with host_lock(subject):
        pass
