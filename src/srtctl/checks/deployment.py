"""What the checks expect to find: the plan, bound to the nodes of this job (`plan_file.load` reads it)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from srtctl.checks.model import Target


@dataclass(frozen=True)
class Publisher:
    """Where the plan has a DP rank publish its KV events; port 0: where its engine says."""

    process: str
    node: int
    port: int

    @property
    def discovered(self) -> bool:
        """Whether the plan leaves the port to the engine."""
        return self.port == 0

    @property
    def place(self) -> str:
        """Where it is, as the plan has it, in words."""
        where = "on a port of its choice" if self.discovered else f"port {self.port}"
        return f"node {self.node} {where}"


@dataclass(frozen=True)
class Node:
    """A node of this job: its name in Slurm, its address."""

    name: str
    address: str


@dataclass(frozen=True)
class Process:
    """An engine process with its parts (`engine`, and `sidecar` where it has one), or a service or frontend.

    `visible` is its planned CUDA_VISIBLE_DEVICES (empty: not set); `listens` are the ports that must listen, by purpose;
    `serves` are the ranks whose requests come in there.
    """

    name: str
    node: int
    parts: tuple[str, ...]
    visible: str
    listens: Mapping[str, int]
    serves: tuple[int, ...] = ()


@dataclass(frozen=True)
class Worker:
    """A planned worker. `serving` are the `host:port` of the status servers of its serving sidecars.

    `topic` is that of its KV events, `bootstrap` the `host:port` that its prefill leader must announce (else empty).
    `dp_attention`: its DP ranks share the GPUs of one TP group. `features`: what its flags ask of the engine beyond text
    (`lora`, `multimodal`). `direct` is the `host:port` of its engine's gRPC server, where the frontend is to call that.
    """

    name: str
    role: str
    dp_size: int
    serving: tuple[str, ...]
    publishers: Mapping[int, Publisher]
    processes: tuple[Process, ...]
    topic: str = ""
    bootstrap: str = ""
    dp_attention: bool = False
    features: frozenset[str] = frozenset()
    direct: str = ""
    engine: str = ""

    @property
    def leader(self) -> str:
        """Name of its leader process."""
        return self.processes[0].name


@dataclass(frozen=True)
class PlannedCheck:
    """`timeout` is in seconds; None leaves it to the check. `settings` are numbers that only this check has."""

    name: str
    on_failure: str
    targets: tuple[Target, ...]
    timeout: float | None = None
    settings: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class EtcdDiscovery:
    endpoints: tuple[str, ...]


@dataclass(frozen=True)
class FileDiscovery:
    root: Path


@dataclass(frozen=True)
class Deployment:
    """`model` is the served name, `endpoint` the URL that clients use, `frontends` are URLs by name: that one, or those
    behind nginx, each with a router and an index of its own. Only a `kv_router` tells which workers and ranks it knows.

    `run_dir` holds `logs`, `state` and `events`; `claimed` are the ports reserved on each node.
    """

    run_dir: Path
    nodes: Mapping[int, Node]
    claimed: Mapping[int, frozenset[int]]
    singles: tuple[Process, ...]
    model: str
    endpoint: str
    frontends: Mapping[str, str]
    kv_router: bool
    discovery: EtcdDiscovery | FileDiscovery
    workers: tuple[Worker, ...]
    checks: tuple[PlannedCheck, ...]

    def called(self, frontend: str) -> str:
        """A frontend in a message."""
        return frontend if len(self.frontends) > 1 else "the frontend"

    def worker(self, name: str) -> Worker:
        """The worker of that name; `load` made sure that every target has one."""
        return next(worker for worker in self.workers if worker.name == name)

    def server_of(self, target: Target) -> Process:
        """The engine process that takes the requests of a target: its rank's, else the leader's."""
        processes = self.worker(target.worker).processes
        return next((process for process in processes if target.dp_rank in process.serves), processes[0])

    def process_of(self, target: Target) -> Process:
        """The engine process that a target is about: where its rank publishes, else the one that serves it."""
        worker = self.worker(target.worker)
        publisher = None if target.dp_rank is None else worker.publishers.get(target.dp_rank)
        if publisher is None:
            return self.server_of(target)
        return next(process for process in worker.processes if process.name == publisher.process)
