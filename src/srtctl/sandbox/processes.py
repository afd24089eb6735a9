"""Processes of this machine as /proc shows them: who belongs to a sandbox, is it still the one we started, end it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
MARKER = "SRTCTL_SANDBOX_STATE"
"""Set to the state folder in the environment of every daemon; slurmstepd inherits it from its slurmd."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process. `started` (clock ticks since boot) tells it from a later one with its pid."""

    pid: int
    parent: int
    started: int


def boot_id() -> str:
    """The kernel's name for the time since this machine was booted."""
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def read(pid: int) -> Process | None:
    """The process with this pid; None when there is none or only its zombie is left."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # proc(5): the name in parentheses may itself hold spaces and parentheses.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else Process(pid, int(fields[1]), int(fields[19]))


def processes() -> Iterator[Process]:
    """All processes that run now."""
    for entry in PROC.iterdir():
        if entry.name.isdecimal() and (process := read(int(entry.name))):
            yield process


@dataclass(frozen=True, slots=True)
class Belonging:
    """How a sandbox's process is known: its network namespace (device, inode), the marker, or a step's environment."""

    namespaces: frozenset[tuple[int, int]]
    state: str
    slurm_conf: str

    def __call__(self, process: Process) -> bool:
        """True when the process itself shows that it is the sandbox's; what others own and hide is not."""
        return self._in_namespace(process.pid) or self._in_environment(process.pid)

    def _in_namespace(self, pid: int) -> bool:
        if not self.namespaces:
            return False
        try:
            found = (PROC / str(pid) / "ns/net").stat()
        except OSError:
            return False
        return (found.st_dev, found.st_ino) in self.namespaces

    def _in_environment(self, pid: int) -> bool:
        try:
            entries = (PROC / str(pid) / "environ").read_bytes().split(b"\0")
        except OSError:
            return False
        env = dict(entry.partition(b"=")[::2] for entry in entries)
        if env.get(MARKER.encode()) == os.fsencode(self.state):
            return True
        # SLURM_CONF alone may be a user's shell; slurmd sets its node's name only in what it launches.
        return env.get(b"SLURM_CONF") == os.fsencode(self.slurm_conf) and b"SLURMD_NODENAME" in env


def members(belongs: Callable[[Process], bool]) -> list[Process]:
    """The processes that `belongs` is true of and all their descendants, without this process and its ancestors."""
    everyone = {process.pid: process for process in processes()}
    children: dict[int, list[int]] = {}
    for process in everyone.values():
        children.setdefault(process.parent, []).append(process.pid)
    todo = [process.pid for process in everyone.values() if belongs(process)]
    found: set[int] = set()
    while todo:
        pid = todo.pop()
        if pid not in found:
            found.add(pid)
            todo += children.get(pid, [])
    return [everyone[pid] for pid in sorted(found - _ancestry(everyone))]


def _ancestry(everyone: dict[int, Process]) -> set[int]:
    pid, found = os.getpid(), set[int]()
    while pid and pid not in found:
        found.add(pid)
        pid = everyone[pid].parent if pid in everyone else 0
    return found


def end(victims: Iterable[Process], number: signal.Signals, wait_seconds: float) -> list[Process]:
    """Sends the signal to each process that is still the same one; returns those that live after `wait_seconds`.

    Each is held by a pidfd from before its identity is checked, so a reused pid is never hit.
    """
    waiting: dict[int, Process] = {}
    poll = select.poll()
    with contextlib.ExitStack() as stack:
        for victim in victims:
            try:
                handle = os.pidfd_open(victim.pid)
            except ProcessLookupError:
                continue
            stack.callback(os.close, handle)
            now = read(victim.pid)
            if now is None or now.started != victim.started:
                continue
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)
                waiting[handle] = victim
                poll.register(handle, select.POLLIN)
        deadline = time.monotonic() + wait_seconds
        while waiting and (left := deadline - time.monotonic()) > 0:
            for handle, _ in poll.poll(left * 1000):
                poll.unregister(handle)
                reap(waiting.pop(handle).pid)
        return list(waiting.values())


def reap(pid: int) -> None:
    """Collects an ended child of this very process; does nothing for any other pid."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
