"""The state of a sandbox, from its processes and its slurmctld."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from srtctl.cluster.paths import sandbox_dir, sandbox_name
from srtctl.sandbox import control, daemons, packages, record
from srtctl.sandbox.layout import Layout
from srtctl.sandbox.spec import Shape


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """A node and Slurm's own word for its state; `unknown` when slurmctld does not answer."""

    name: str
    address: str
    state: str


@dataclass(frozen=True, slots=True)
class DaemonStatus:
    """A daemon and whether the process that was started still runs."""

    name: str
    pid: int
    running: bool


@dataclass(frozen=True, slots=True)
class SandboxStatus:
    """What is there. `shape` is None when nothing is (or no more than a half-made state folder)."""

    name: str
    state: Path
    up: bool
    shape: Shape | None
    profile: Path | None
    nodes: tuple[NodeStatus, ...]
    daemons: tuple[DaemonStatus, ...]

    @property
    def intact(self) -> bool:
        """True when it is up and every daemon runs."""
        return self.up and all(daemon.running for daemon in self.daemons)

    @property
    def healthy(self) -> bool:
        """True when it is intact and slurmctld answers."""
        return self.intact and all(node.state != "unknown" for node in self.nodes)


def status(name: str | None = None, env: Mapping[str, str] = os.environ) -> SandboxStatus:
    """What is there of a sandbox now. `name` None means `$SRTCTL_SANDBOX` or `default`."""
    name = name or sandbox_name(env)
    layout = Layout(sandbox_dir(name, env).absolute())
    noted = record.read(layout.record)
    shape = noted.shape if noted else None
    found = tuple(DaemonStatus(d.name, d.pid, d.running() is not None) for d in daemons.recorded(layout))
    is_up = shape is not None and layout.profile.is_file()
    if shape is None:
        return SandboxStatus(name, layout.root, False, None, None, (), found)
    states: Mapping[str, str] = {}
    if any(daemon.name == "slurmctld" and daemon.running for daemon in found):
        states = control.node_states(packages.require(), layout)
    nodes = tuple(NodeStatus(node.name, node.address, states.get(node.name, "unknown")) for node in shape.nodes)
    return SandboxStatus(name, layout.root, is_up, shape, layout.profile if is_up else None, nodes, found)
