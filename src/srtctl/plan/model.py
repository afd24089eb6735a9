"""The plan: everything that will run, as plain data. Nodes are indices, never host names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from srtctl.diagnostics import Diagnostic

PLAN_VERSION = 1


def node_address(node: int) -> str:
    """How an address that only the job knows is written, in argv and env alike."""
    return f"${{NODE_ADDR[{node}]}}"


@dataclass(frozen=True, slots=True)
class Publisher:
    """The ZMQ socket of one global DP rank: (rank, bound port)."""

    dp_rank: int
    port: int


@dataclass(frozen=True, slots=True)
class Sidecar:
    """The Dynamo process beside an engine process."""

    mode: Literal["serving", "telemetry"]
    argv: tuple[str, ...]
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Process:
    """One engine process of a worker on one node. `ready_port` is None where nothing can be waited for."""

    name: str
    node: int
    node_rank: int
    gpus: tuple[int, ...]
    argv: tuple[str, ...]
    env: Mapping[str, str]
    ready_port: int | None
    sidecar: Sidecar | None
    publishers: tuple[Publisher, ...]


@dataclass(frozen=True, slots=True)
class Worker:
    """One logical engine instance; one Slurm step."""

    name: str
    role: str
    engine: str
    nodes: tuple[int, ...]
    dp_size: int
    processes: tuple[Process, ...]


@dataclass(frozen=True, slots=True)
class Service:
    """Infrastructure (etcd, NATS) or a frontend: one process on one node, ready when `port` answers."""

    name: str
    node: int
    argv: tuple[str, ...]
    env: Mapping[str, str]
    port: int


@dataclass(frozen=True, slots=True, order=True)
class Claim:
    """The reserved port interval [first, first + count) on a node."""

    node: int
    first: int
    count: int
    purpose: str
    owner: str


@dataclass(frozen=True, slots=True)
class CheckTarget:
    worker: str
    dp_rank: int


@dataclass(frozen=True, slots=True)
class Check:
    """A post-launch check; `timeout` in seconds, None for the check's own default."""

    name: str
    on_failure: Literal["fail", "warn"]
    targets: tuple[CheckTarget, ...]
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class SlurmRequest:
    """What the job asks Slurm for. `directives` are further `#SBATCH --key[=value]` lines from recipe and profile."""

    time_limit: str | None
    account: str | None
    partition: str | None
    gpus_directive: bool
    exclusive: bool
    directives: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Health:
    """Clocks of the job in seconds: processes up within `startup`, then registrations complete within `gate`."""

    startup: int
    gate: int


@dataclass(frozen=True, slots=True)
class Plan:
    """One deployment. Equal plans compare equal and serialise to equal bytes."""

    name: str
    source: str
    nodes: int
    gpus_per_node: int
    model_path: str
    served_name: str
    workers: tuple[Worker, ...]
    services: tuple[Service, ...]
    frontends: tuple[Service, ...]
    claims: tuple[Claim, ...]
    checks: tuple[Check, ...]
    slurm: SlurmRequest
    health: Health
    environment: Mapping[str, str]
    runtime_python: str
    network_interface: str | None
    warnings: tuple[Diagnostic, ...] = field(default=())

    def as_dict(self) -> dict[str, Any]:
        """plan.json, version 1 (docs/architecture.md)."""
        return {
            "version": PLAN_VERSION,
            "name": self.name,
            "source": self.source,
            "nodes": self.nodes,
            "gpus_per_node": self.gpus_per_node,
            "model": {"path": self.model_path, "served_name": self.served_name},
            "workers": [_worker(w) for w in self.workers],
            "services": [_service(s) for s in self.services],
            "frontends": [_service(f) for f in self.frontends],
            "claims": [
                {"node": c.node, "first": c.first, "count": c.count, "purpose": c.purpose, "owner": c.owner}
                for c in self.claims
            ],
            "checks": [_check(c) for c in self.checks],
            "slurm": {
                "time_limit": self.slurm.time_limit,
                "account": self.slurm.account,
                "partition": self.slurm.partition,
                "gpus_directive": self.slurm.gpus_directive,
                "exclusive": self.slurm.exclusive,
                "directives": dict(self.slurm.directives),
            },
            "health": {"startup": self.health.startup, "gate": self.health.gate},
            "environment": dict(self.environment),
            "runtime": {"python": self.runtime_python, "network_interface": self.network_interface},
            "warnings": [w.as_dict() for w in self.warnings],
        }


def _worker(worker: Worker) -> dict[str, Any]:
    return {
        "name": worker.name,
        "role": worker.role,
        "engine": worker.engine,
        "nodes": list(worker.nodes),
        "dp_size": worker.dp_size,
        "processes": [_process(p) for p in worker.processes],
    }


def _process(process: Process) -> dict[str, Any]:
    sidecar = process.sidecar
    return {
        "name": process.name,
        "node": process.node,
        "node_rank": process.node_rank,
        "gpus": list(process.gpus),
        "argv": list(process.argv),
        "env": dict(process.env),
        "ready_port": process.ready_port,
        "sidecar": sidecar and {"mode": sidecar.mode, "argv": list(sidecar.argv), "env": dict(sidecar.env)},
        "publishers": [{"dp_rank": p.dp_rank, "port": p.port} for p in process.publishers],
    }


def _service(service: Service) -> dict[str, Any]:
    return {
        "name": service.name,
        "node": service.node,
        "argv": list(service.argv),
        "env": dict(service.env),
        "port": service.port,
    }


def _check(check: Check) -> dict[str, Any]:
    out: dict[str, Any] = {"name": check.name, "on_failure": check.on_failure}
    if check.timeout is not None:
        out["timeout"] = check.timeout
    return out | {"targets": [{"worker": t.worker, "dp_rank": t.dp_rank} for t in check.targets]}
