"""What a backend answers about its engine. One module per engine implements `Backend`; `plan` asks, nobody else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from srtctl.diagnostics import Diagnostic
from srtctl.recipe.model import Recipe


@dataclass(frozen=True, slots=True)
class Layout:
    """Where one worker lies: GPU indices per node, in node-rank order."""

    gpus: tuple[tuple[int, ...], ...]

    @property
    def nnodes(self) -> int:
        return len(self.gpus)


@dataclass(frozen=True, slots=True)
class PortNeed:
    """One port interval that a process binds on its node.

    `fixed` is the first port where the user wrote one (at recipe path `path`); None lets the ledger choose.
    `common` asks for one value on all nodes of the worker.
    """

    purpose: str
    count: int = 1
    fixed: int | None = None
    path: str = ""
    common: bool = False


@dataclass(frozen=True, slots=True)
class ProcessShape:
    """What one process of a worker is, before ports are known.

    `serves` are the global DP ranks whose requests come in here: those it registers with Dynamo, or those behind its
    HTTP server. `runs` are the ranks whose engine cores it runs, where the engine wants to be told. `registers`: with
    Dynamo, by itself, without a sidecar.
    """

    ports: tuple[PortNeed, ...]
    serves: tuple[int, ...]
    runs: tuple[int, ...] = ()
    publisher_ranks: tuple[int, ...] = ()
    sidecar: bool = False
    registers: bool = False


@dataclass(frozen=True, slots=True)
class WorkerShape:
    """What a worker is, before ports are known: DP size and its processes in node-rank order.

    `launcher`: `node` starts one process a node; `task` several, as many on each of its nodes, which share the GPUs
    there in equal parts; `mpi` one MPI rank a GPU, of which rank 0 is the leader.
    """

    dp_size: int
    processes: tuple[ProcessShape, ...]
    launcher: Literal["node", "task", "mpi"] = "node"


@dataclass(frozen=True, slots=True)
class ProcessContext:
    """What a backend needs to write one command line. `ports` maps purpose to the first claimed port on this process's node;
    `gpus` are the GPUs of that node, `address` is the node's."""

    node_rank: int
    nnodes: int
    gpus: tuple[int, ...]
    address: str
    leader_address: str
    ports: Mapping[str, int]
    leader_ports: Mapping[str, int]
    model_path: str


@dataclass(frozen=True, slots=True)
class Command:
    """An argv (what all processes of the worker share comes first), the environment the engine needs, and the port that
    answers when the process is up (None: nothing answers)."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    ready_port: int | None


class Backend(Protocol):
    """One engine. All methods are pure."""

    name: str

    def check_recipe(self, recipe: Recipe) -> list[Diagnostic]:
        """Faults that no single role shows: knobs nobody knows, roles that contradict each other; paths as in `check`."""
        ...

    def check(self, recipe: Recipe, role_name: str, gpus: int) -> list[Diagnostic]:
        """Faults in the role's own arguments, for workers of `gpus` GPUs each; paths are dotted recipe paths, spans are not set."""
        ...

    def shape(self, recipe: Recipe, role_name: str, layout: Layout) -> tuple[WorkerShape | None, list[Diagnostic]]:
        """DP size, port needs, publishers and sidecars of a worker laid out so; None with the reasons when it cannot run.

        Asked only about roles in which `check` found nothing.
        """
        ...

    def served_name(self, recipe: Recipe, model_path: str) -> str:
        """The model name that clients ask for; `model_path` is where the engine finds the model."""
        ...

    def command(self, recipe: Recipe, role_name: str, shape: WorkerShape, context: ProcessContext) -> Command:
        """The command of one process."""
        ...

    def sidecar(self, recipe: Recipe, role_name: str, context: ProcessContext) -> tuple[str, ...]:
        """The command of the sidecar beside one process: module, endpoint, and what only this engine's sidecar needs."""
        ...

    def files(self, recipe: Recipe, role_name: str) -> Mapping[str, str]:
        """What the commands of a role read: name to text. They name it as `references.bundle_file(name)`."""
        ...


def sidecar_module(engine: str, grpc_port: int) -> tuple[str, ...]:
    """How the sidecar of an engine is started (ai-dynamo 1.6.1 ships one module each), beside that gRPC port."""
    return ("python3", "-m", f"dynamo.{engine}.sidecar", "--grpc-endpoint", f"127.0.0.1:{grpc_port}")


def flags(arguments: Sequence[tuple[str, str | None]]) -> tuple[str, ...]:
    """`[("port", "6100"), ("enable-x", None)]` as `("--port", "6100", "--enable-x")`."""
    return tuple(
        word for name, value in arguments for word in ((f"--{name}",) if value is None else (f"--{name}", value))
    )
