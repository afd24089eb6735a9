"""One worker of the plan, from its placement, its shape and its ports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from srtctl.backends.base import Backend, ProcessContext, ProcessShape, WorkerShape
from srtctl.plan.direct import advertise_flags, advertises
from srtctl.plan.model import Process, Publisher, Sidecar, Worker, node_address
from srtctl.plan.placement import Placed
from srtctl.plan.site import Site
from srtctl.recipe.model import Recipe
from srtctl.sidecars import sidecar_command, sidecar_settings, worker_env


@dataclass(frozen=True, slots=True)
class WorkerFactory:
    """Makes the workers of one plan. `dynamo_env` is what all processes that talk to Dynamo share."""

    recipe: Recipe
    site: Site
    backend: Backend
    dynamo_env: Mapping[str, str]

    def __call__(self, placed: Placed, shape: WorkerShape, ports: Sequence[Mapping[str, int]]) -> Worker:
        """The worker; `ports` maps purpose to first port, a mapping for each node rank."""
        processes = tuple(self._process(placed, shape, ports, rank) for rank in range(len(placed.nodes)))
        engine, launcher = self.backend.name, shape.launcher
        return Worker(placed.name, placed.role, engine, placed.nodes, shape.dp_size, launcher, processes, "", {}, ())

    def _process(self, placed: Placed, shape: WorkerShape, ports: Sequence[Mapping[str, int]], rank: int) -> Process:
        process, mine = shape.processes[rank], ports[rank]
        address, leader = node_address(placed.nodes[rank]), node_address(placed.nodes[0])
        nnodes, gpus = len(placed.nodes), placed.gpus[rank]
        context = ProcessContext(rank, nnodes, gpus, address, leader, mine, ports[0], self.site.model_path)
        command = self.backend.command(self.recipe, placed.role, shape, context)
        devices = {self.site.visible_devices_env: ",".join(map(str, gpus))}
        registration = worker_env(self.dynamo_env, address, mine["system"]) if process.registers else {}
        return Process(
            name=f"{placed.name}.{rank}",
            node=placed.nodes[rank],
            node_rank=rank,
            gpus=gpus,
            serves=process.serves,
            argv=command.argv,
            env={**devices, **command.env, **registration, **self.recipe.roles[placed.role].env},
            ready_port=command.ready_port,
            sidecar=self._sidecar(placed, process, context) if process.sidecar else None,
            publishers=tuple(_publisher(rank, mine.get("kv_events")) for rank in process.publisher_ranks),
        )

    def _sidecar(self, placed: Placed, process: ProcessShape, context: ProcessContext) -> Sidecar | None:
        role = placed.role
        settings = self.recipe.roles[role].sidecar
        if settings is None:
            return None
        native = self.backend.sidecar(self.recipe, role, context)
        argv = sidecar_command(settings, role, native, context.ports["grpc"], context.model_path)
        if process.serves and advertises(self.recipe, placed.name, role):
            argv += advertise_flags(context.address, context.ports["grpc"])
        argv += sidecar_settings(settings)
        env = {**worker_env(self.dynamo_env, context.address, context.ports["system"]), **self.recipe.roles[role].env}
        return Sidecar("serving" if process.serves else "telemetry", argv, env)


def _publisher(dp_rank: int, base: int | None) -> Publisher:
    """Nothing is claimed (`base` None) where the engine chooses the ports of its publishers."""
    return Publisher(dp_rank, 0 if base is None else base + dp_rank)
