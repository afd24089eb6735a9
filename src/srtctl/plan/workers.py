"""One worker of the plan, from its placement, its shape and its ports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from srtctl.backends.base import Backend, ProcessContext, WorkerShape
from srtctl.plan.model import Process, Publisher, Sidecar, Worker, node_address
from srtctl.plan.placement import Placed
from srtctl.plan.site import Site
from srtctl.recipe.model import Recipe
from srtctl.recipe.model import Sidecar as SidecarSettings
from srtctl.sidecars import native_sidecar, worker_env


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
        return Worker(placed.name, placed.role, self.backend.name, placed.nodes, shape.dp_size, processes)

    def _process(self, placed: Placed, shape: WorkerShape, ports: Sequence[Mapping[str, int]], rank: int) -> Process:
        process, mine = shape.processes[rank], ports[rank]
        address, leader = node_address(placed.nodes[rank]), node_address(placed.nodes[0])
        context = ProcessContext(rank, len(placed.nodes), leader, mine, ports[0], self.site.model_path)
        role = self.recipe.roles[placed.role]
        command = self.backend.command(self.recipe, placed.role, shape, context)
        devices = {self.site.visible_devices_env: ",".join(map(str, placed.gpus[rank]))}
        registration = worker_env(self.dynamo_env, address, mine["system"]) if process.registers else {}
        return Process(
            name=f"{placed.name}.{rank}",
            node=placed.nodes[rank],
            node_rank=rank,
            gpus=placed.gpus[rank],
            argv=command.argv,
            env={**devices, **command.env, **registration, **role.env},
            ready_port=command.ready_port,
            sidecar=self._sidecar(role.sidecar, placed, mine, rank) if process.sidecar and role.sidecar else None,
            publishers=tuple(Publisher(r, mine["kv_events"] + r) for r in process.publisher_ranks),
        )

    def _sidecar(self, settings: SidecarSettings, placed: Placed, ports: Mapping[str, int], rank: int) -> Sidecar:
        made = native_sidecar(
            self.backend.name,
            placed.role,
            settings,
            leader=rank == 0,
            grpc_port=ports["grpc"],
            system_port=ports["system"],
            address=node_address(placed.nodes[rank]),
            leader_address=node_address(placed.nodes[0]),
            dynamo_env=self.dynamo_env,
        )
        env = {**made.env, **self.recipe.roles[placed.role].env}
        return Sidecar("serving" if rank == 0 else "telemetry", made.argv, env)
