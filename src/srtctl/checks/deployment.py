"""What the checks expect to find: the plan, bound to the nodes of this job (`plan_file.load` reads it)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from srtctl.checks.model import Target


@dataclass(frozen=True)
class Publisher:
    """Where the plan has a DP rank publish its KV events."""

    process: str
    node: int
    port: int


@dataclass(frozen=True)
class Worker:
    """A planned worker. `serving` are the `host:port` of the status servers of its serving sidecars."""

    name: str
    role: str
    dp_size: int
    leader: str
    serving: tuple[str, ...]
    publishers: Mapping[int, Publisher]


@dataclass(frozen=True)
class PlannedCheck:
    """`timeout` is in seconds; None leaves it to the check."""

    name: str
    on_failure: str
    targets: tuple[Target, ...]
    timeout: float | None = None


@dataclass(frozen=True)
class EtcdDiscovery:
    endpoints: tuple[str, ...]


@dataclass(frozen=True)
class FileDiscovery:
    root: Path


@dataclass(frozen=True)
class Deployment:
    """`model` is the served name, `frontend` a URL. Only a `kv_router` tells which workers and ranks it knows."""

    model: str
    frontend: str
    kv_router: bool
    discovery: EtcdDiscovery | FileDiscovery
    workers: tuple[Worker, ...]
    checks: tuple[PlannedCheck, ...]

    def worker(self, name: str) -> Worker:
        """The worker of that name; `load` made sure that every target has one."""
        return next(worker for worker in self.workers if worker.name == name)
