"""The plan: everything that will run, as plain data. Nodes are indices, never host names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from srtctl.diagnostics import Diagnostic

PLAN_VERSION = 1


def node_address(node: int) -> str:
    """How an address that only the job knows is written, in argv and env alike."""
    return f"${{NODE_ADDR[{node}]}}"


@dataclass(frozen=True, slots=True)
class Publisher:
    """The ZMQ socket of one global DP rank: (rank, bound port). Port 0 is *discovered*: the engine chooses, and tells."""

    dp_rank: int
    port: int

    @property
    def place(self) -> str:
        """Its port in words."""
        return str(self.port) if self.port else "a port of its choice"


@dataclass(frozen=True, slots=True)
class Sidecar:
    """The Dynamo process beside an engine process."""

    mode: Literal["serving", "telemetry"]
    argv: tuple[str, ...]
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Process:
    """One engine process of a worker on one node. `ready_port` is None where nothing can be waited for.

    `serves` are the global DP ranks whose requests come in here: those it registers with the router, or those behind
    its HTTP server.
    """

    name: str
    node: int
    node_rank: int
    gpus: tuple[int, ...]
    serves: tuple[int, ...]
    argv: tuple[str, ...]
    env: Mapping[str, str]
    ready_port: int | None
    sidecar: Sidecar | None
    publishers: tuple[Publisher, ...]


@dataclass(frozen=True, slots=True)
class Worker:
    """One logical engine instance; one Slurm step.

    `launcher`: `node` runs a process a node; `task` several, whose nodes then stand in `nodes` once for each; `mpi` runs
    each process once a GPU, as one MPI job whose rank 0 is the leader.
    `image` is the container it runs in, empty for the node itself; `setup` are commands that each of its nodes runs first.
    """

    name: str
    role: str
    engine: str
    nodes: tuple[int, ...]
    dp_size: int
    launcher: Literal["node", "task", "mpi"]
    processes: tuple[Process, ...]
    image: str
    srun_options: Mapping[str, str | None]
    setup: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Service:
    """One process on one node that is no worker: infrastructure, a frontend, an extra one. Ready when `port` answers, at
    once where that is None.

    `image` and `setup` are as a worker's. `start`: before the workers, or after every worker is registered.
    """

    name: str
    node: int
    argv: tuple[str, ...]
    env: Mapping[str, str]
    port: int | None
    image: str
    setup: tuple[tuple[str, ...], ...]
    start: Literal["before", "after"] = "before"


@dataclass(frozen=True, slots=True)
class Client:
    """What is run against the deployment once it serves: a bash script on one node. Its end is the end of the job."""

    name: str
    node: int
    script: str
    env: Mapping[str, str]
    image: str


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where clients send requests: a port on a node."""

    node: int
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
    """What a check looks at: a rank of a worker, a worker (no rank), or the whole deployment (neither)."""

    worker: str
    dp_rank: int | None


@dataclass(frozen=True, slots=True)
class Check:
    """A post-launch check; `timeout` in seconds, None for the check's own default; `settings` are its own numbers."""

    name: str
    on_failure: Literal["fail", "warn"]
    targets: tuple[CheckTarget, ...]
    timeout: float | None = None
    settings: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SlurmRequest:
    """What the job asks Slurm for. `segment`: all nodes in one. `directives` are further `#SBATCH --key[=value]` lines from
    recipe and profile."""

    time_limit: str | None
    account: str | None
    partition: str | None
    gpus_directive: bool
    exclusive: bool
    segment: bool
    directives: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Health:
    """Clocks of the job in seconds: processes up within `startup`, then registrations complete within `gate`."""

    startup: int
    gate: int


@dataclass(frozen=True, slots=True)
class Model:
    """Where the weights are, and the name that clients ask for."""

    path: str
    served_name: str


@dataclass(frozen=True, slots=True)
class Runtime:
    """What the job needs to know of the nodes: a Python for the checks, the NIC whose address counts (None: Slurm's), how
    `srun` starts MPI ranks, how processes enter their images, and what is mounted there (`SOURCE:TARGET[:OPTIONS]`)."""

    python: str
    network_interface: str | None
    mpi: str
    container: Literal["none", "pyxis", "apptainer"]
    mounts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """One deployment. Equal plans compare equal and serialise to equal bytes; field names and order are those of plan.json."""

    version: int
    name: str
    source: str
    nodes: int
    gpus_per_node: int
    model: Model
    workers: tuple[Worker, ...]
    services: tuple[Service, ...]
    frontends: tuple[Service, ...]
    endpoint: Endpoint | None
    client: Client | None
    claims: tuple[Claim, ...]
    checks: tuple[Check, ...]
    slurm: SlurmRequest
    health: Health
    environment: Mapping[str, str]
    identity: Mapping[str, Mapping[str, str]]
    files: Mapping[str, str]
    runtime: Runtime
    warnings: tuple[Diagnostic, ...] = field(default=())

    @property
    def proxies(self) -> tuple[Service, ...]:
        """The services that clients talk to: nginx before several frontends."""
        return tuple(
            s for s in self.services if self.endpoint and (s.node, s.port) == (self.endpoint.node, self.endpoint.port)
        )
