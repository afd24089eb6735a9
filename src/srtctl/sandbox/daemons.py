"""Daemons of one sandbox: started in the foreground in a session of their own, found again by a record on disk."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from srtctl.sandbox import processes
from srtctl.sandbox.errors import SandboxError
from srtctl.sandbox.layout import Layout
from srtctl.sandbox.processes import Process

LOG_LINES = 12
KEEP_HINT = "with --retain all logs are kept"


@dataclass(frozen=True, slots=True)
class Daemon:
    """A daemon as recorded. `boot` is the boot it was started in: after another one it is gone."""

    name: str
    pid: int
    started: int
    boot: str

    def running(self) -> Process | None:
        """The process, if it is still the very one that was started."""
        processes.reap(self.pid)
        now = processes.read(self.pid)
        return now if now and now.started == self.started and self.boot == processes.boot_id() else None


def start(name: str, argv: Sequence[str], env: Mapping[str, str], layout: Layout) -> Daemon:
    """Starts a program that stays in the foreground; its output goes to `log/NAME.out`. Raises OSError.

    The environment is `env` alone, so nothing of the caller's reaches the daemon or a job.
    """
    log = layout.logs / f"{name}.out"
    pid = os.posix_spawn(
        "/bin/sh",
        ["/bin/sh", "-c", 'cd "$0" && exec "$@"', str(layout.root), *argv],
        dict(env),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    process = processes.read(pid)
    if process is None:
        processes.reap(pid)
        raise ended(name, layout)
    daemon = Daemon(name, pid, process.started, processes.boot_id())
    (layout.pids / name).write_text(f"{daemon.pid} {daemon.started} {daemon.boot}\n")
    return daemon


def ended(name: str, layout: Layout) -> SandboxError:
    """The error for a daemon that does not run when it should, with the last that it said."""
    return SandboxError(f"{name} ended during the boot", hint=KEEP_HINT, detail=log_tail(name, layout))


def recorded(layout: Layout) -> list[Daemon]:
    """All daemons that were started in this state folder, by name; also dead ones."""
    if not layout.pids.is_dir():
        return []
    return [daemon for path in sorted(layout.pids.iterdir(), key=_order) if (daemon := _parse(path))]


def _order(path: Path) -> tuple[str, int]:
    stem, _, number = path.name.rpartition("-")
    return (stem, int(number)) if number.isdecimal() else (path.name, -1)


def _parse(path: Path) -> Daemon | None:
    fields = path.read_text().split()
    # A record that was cut short by a crash: the process is found by its namespace or its environment instead.
    return Daemon(path.name, int(fields[0]), int(fields[1]), fields[2]) if len(fields) == 3 else None


def first_dead(daemons: Iterable[Daemon]) -> Daemon | None:
    """The first daemon that does not run any more."""
    return next((daemon for daemon in daemons if not daemon.running()), None)


def log_tail(name: str, layout: Layout) -> str:
    """The last lines that a daemon said, for a message; empty when it said nothing."""
    for path in (layout.logs / f"{name}.out", layout.logs / f"{name}.log"):
        if path.is_file() and (lines := path.read_text(errors="replace").splitlines()):
            return "\n".join([f"{path}:", *(f"  {line}" for line in lines[-LOG_LINES:])])
    return ""
