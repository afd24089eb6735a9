"""Undoing a sandbox, from whatever state it is in: up, half booted, crashed, or left over from another boot."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress

from srtctl.sandbox import control, daemons, mounts, network, packages, processes, record
from srtctl.sandbox.errors import SandboxError
from srtctl.sandbox.layout import Layout

CANCEL_SECONDS = 15
"""More than KillWait: jobs end by themselves and write how."""
TERM_SECONDS = 2
KILL_SECONDS = 10
POLL_SECONDS = 0.1

Say = Callable[[str], None]


def teardown(name: str, layout: Layout, say: Say) -> bool:
    had_files = layout.root.exists()
    bridge_owner = network.owner(name)
    network_is_ours = bridge_owner == str(layout.root) or (had_files and not bridge_owner)
    if not had_files and not network_is_ours:
        return False
    noted = record.read(layout.record)
    _cancel_jobs(layout, say)
    running = [process for daemon in daemons.recorded(layout) if (process := daemon.running())]
    # The nodes before the controller: they report the end of their steps to it.
    processes.end(reversed(running), signal.SIGTERM, TERM_SECONDS)
    spaces = network.namespace_ids(name) if network_is_ours else frozenset()
    _end_members(processes.Belonging(spaces, str(layout.root), str(layout.slurm_conf)), say)
    if network_is_ours:
        network.delete(name)
        if noted and noted.made_netns_dir:
            network.remove_netns_dir()
    if had_files:
        mounts.unmount_below(layout.root)
        shutil.rmtree(layout.root)
    parents = [layout.root.parent, *([layout.root.parent.parent] if noted and noted.made_data_dir else [])]
    with suppress(OSError):
        for folder in parents:
            folder.rmdir()
    return True


def _cancel_jobs(layout: Layout, say: Say) -> None:
    if not any(daemon.name == "slurmctld" and daemon.running() for daemon in daemons.recorded(layout)):
        return
    programs = packages.require()
    ids = control.jobs(programs, layout)
    if not ids:
        return
    say(f"cancelling {len(ids)} job{'s' if len(ids) > 1 else ''}")
    control.cancel(programs, layout, ids)
    deadline = time.monotonic() + CANCEL_SECONDS
    while control.jobs(programs, layout) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)


def _end_members(belongs: processes.Belonging, say: Say) -> None:
    deadline = time.monotonic() + KILL_SECONDS
    while left := processes.members(belongs):
        if time.monotonic() >= deadline:
            raise SandboxError(
                f"these processes of the sandbox do not end: {', '.join(str(process.pid) for process in left)}",
                hint="they may wait for a disk; try `srtctl sandbox down` again",
            )
        say(f"ending {len(left)} leftover process{'es' if len(left) > 1 else ''}")
        processes.end(left, signal.SIGKILL, 1)
