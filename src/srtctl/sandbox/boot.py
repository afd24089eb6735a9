"""Booting: from an empty state folder to nodes that are all idle."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Callable, Mapping

from srtctl.sandbox import config, control, daemons, image, packages, profile
from srtctl.sandbox.daemons import Daemon
from srtctl.sandbox.errors import SandboxError
from srtctl.sandbox.layout import Layout
from srtctl.sandbox.processes import MARKER
from srtctl.sandbox.spec import Node, Shape
from srtctl.sandbox.stack import Stack

POLL_SECONDS = 0.1
MUNGE_SECONDS = 15
CONTROLLER_SECONDS = 30
NODES_SECONDS = 30
NODE_SECONDS = 1
"""The nodes together get NODES_SECONDS, plus this for each."""


def write_files(shape: Shape, layout: Layout, programs: Mapping[str, str]) -> None:
    """Folders, keys and configuration of the daemons."""
    user = pwd_name(os.geteuid())
    spools = [layout.spool / node.name for node in shape.nodes]
    for folder in (
        layout.pids,
        layout.logs,
        layout.controller_state,
        layout.gpus,
        layout.home,
        layout.tmp,
        layout.runs,
        *spools,
    ):
        folder.mkdir(parents=True)
    layout.munge_key.parent.mkdir()
    layout.munge_key.touch(0o600)
    layout.munge_key.write_bytes(os.urandom(128))
    for number in range(shape.gpus_per_node):
        # Slurm wants device files; which device does not matter as nothing confines a job to its own.
        (layout.gpus / f"gpu{number}").symlink_to(os.devnull)
    layout.hosts.write_text(config.hosts(shape))
    layout.slurm_conf.write_text(config.slurm_conf(shape, layout, user))
    layout.slurm_conf.with_name("gres.conf").write_text(config.gres_conf(shape, layout))
    cgroups = config.cgroup_conf(control.slurm_version(programs))
    layout.slurm_conf.with_name("cgroup.conf").write_text(cgroups)


def pwd_name(uid: int) -> str:
    """Name of a user; the number when the system knows no name for it."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def start_all(shape: Shape, layout: Layout, programs: Mapping[str, str], say: Callable[[str], None]) -> None:
    """Starts munged, slurmctld and every slurmd, and returns when all nodes are idle.

    Raises SandboxError with the end of a daemon's log when one ends or a deadline passes.
    """
    env = {
        "PATH": packages.SYSTEM_PATH,
        "HOME": str(layout.home),
        "LC_ALL": "C.UTF-8",
        "SLURM_CONF": str(layout.slurm_conf),
        MARKER: str(layout.root),
    }
    munged = daemons.start("munged", _munged(layout, programs), env, layout)
    _wait([munged], lambda: "" if layout.munge_socket.is_socket() else "munged", MUNGE_SECONDS, layout)
    controller = daemons.start("slurmctld", config.controller_command(shape, layout, programs), env, layout)
    running = [munged, controller]
    _wait(running, lambda: "" if control.answers(programs, layout) else "slurmctld", CONTROLLER_SECONDS, layout)
    say(f"starting {len(shape.nodes)} node{'' if len(shape.nodes) == 1 else 's'}")
    for node in shape.nodes:
        argv = config.node_command(shape, layout, node.index, programs)
        running.append(daemons.start(slurmd_name(node), argv, env, layout))
    hint = (
        "if a firewall here filters what crosses a bridge, use --network loopback" if shape.network == "netns" else ""
    )
    limit = NODES_SECONDS + NODE_SECONDS * len(shape.nodes)
    _wait(running, lambda: first_not_idle(shape, layout, programs), limit, layout, hint)


def slurmd_name(node: Node) -> str:
    """Name of a node's daemon among the daemons."""
    return f"slurmd-{node.name}"


def first_not_idle(shape: Shape, layout: Layout, programs: Mapping[str, str]) -> str:
    """The daemon of the first node that slurmctld does not call idle; empty when all are."""
    states = control.node_states(programs, layout)
    return next((slurmd_name(node) for node in shape.nodes if states.get(node.name) != "idle"), "")


def finish(shape: Shape, layout: Layout, stack: Stack) -> None:
    """Image, model, and last the profile."""
    image.build_image(layout.image)
    image.build_model(layout, stack)
    profile.write(layout.profile, profile.profile(shape, layout, stack))


def _munged(layout: Layout, programs: Mapping[str, str]) -> list[str]:
    folder = layout.munge_key.parent
    return [
        programs["munged"],
        "--foreground",
        # Without it munged refuses a state folder below one that others cannot enter, such as a home folder.
        "--force",
        f"--key-file={layout.munge_key}",
        f"--socket={layout.munge_socket}",
        f"--pid-file={folder / 'munged.pid'}",
        f"--seed-file={folder / 'munged.seed'}",
        f"--log-file={layout.logs / 'munged.log'}",
    ]


def _wait(running: list[Daemon], missing: Callable[[], str], seconds: float, layout: Layout, hint: str = "") -> None:
    """Returns when `missing` names no daemon that is still waited for, while all in `running` live."""
    deadline = time.monotonic() + seconds
    while name := missing():
        if dead := daemons.first_dead(running):
            raise daemons.ended(dead.name, layout)
        if time.monotonic() >= deadline:
            words = f"{name} was not ready within {seconds:g} s"
            raise SandboxError(words, hint=hint or daemons.KEEP_HINT, detail=daemons.log_tail(name, layout))
        time.sleep(POLL_SECONDS)
