"""Recipe and cluster profile to plan: the order of decisions, each made in its own module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from srtctl.backends import BACKENDS
from srtctl.backends.base import Backend, Layout, ProcessContext, WorkerShape
from srtctl.cluster.load import LoadedCluster
from srtctl.diagnostics import Collector, Diagnostic
from srtctl.frontends import dynamo_frontend, router_mode
from srtctl.plan.infrastructure import InfrastructurePorts, dynamo_env, needs_nats, services
from srtctl.plan.model import (
    PLAN_VERSION,
    Health,
    Model,
    Plan,
    Process,
    Publisher,
    Runtime,
    Service,
    Sidecar,
    Worker,
    node_address,
)
from srtctl.plan.placement import Placed, Request, place
from srtctl.plan.ports import Ledger
from srtctl.plan.selection import select_checks
from srtctl.plan.site import Site, resolve_site
from srtctl.recipe.load import LoadedRecipe
from srtctl.recipe.model import Recipe, Role
from srtctl.sidecars import native_sidecar

#: Services, frontends and the checks run on the first node of the allocation.
INFRASTRUCTURE_NODE = 0


@dataclass(frozen=True, slots=True)
class BuildResult:
    """The plan, or None with the reasons; `diagnostics` also holds the warnings that the plan carries."""

    plan: Plan | None
    diagnostics: tuple[Diagnostic, ...]


def build_plan(loaded: LoadedRecipe, cluster: LoadedCluster) -> BuildResult:
    """Everything that will run, as data. Pure: the same inputs give an equal plan."""
    diagnostics = list(loaded.diagnostics) + list(cluster.diagnostics)
    recipe = loaded.recipe
    if recipe is None or cluster.profile is None or any(d.severity == "error" for d in diagnostics):
        return BuildResult(None, tuple(diagnostics))
    found = Collector()
    plan = _Builder(recipe, resolve_site(recipe, cluster, found), found).build(loaded.document.file)
    diagnostics += [_located(d, loaded) for d in found.items]
    if plan is None or any(d.severity == "error" for d in diagnostics):
        return BuildResult(None, tuple(diagnostics))
    return BuildResult(replace(plan, warnings=tuple(diagnostics)), tuple(diagnostics))


@dataclass(slots=True)
class _Builder:
    recipe: Recipe
    site: Site
    found: Collector

    def build(self, source: str) -> Plan | None:
        recipe, site = self.recipe, self.site
        backend = BACKENDS[recipe.engine.type]
        gpus = {name: role.gpus or _gpus_per_worker(role, site.gpus_per_node) for name, role in recipe.roles.items()}
        for name, role in recipe.roles.items():
            self.found.items += backend.check(name, role, gpus[name])
            if role.sidecar is None:
                self.found.error(
                    "plan/sidecar-needed",
                    f"role `{name}` has no sidecar; running the engine inside Dynamo's own wrapper is not built yet",
                    path=f"roles.{name}",
                    hint="set `sidecar: true` on the role, or once under `dynamo`",
                )
        requests, nodes = _requests(recipe, gpus)
        placed, problems = place(requests, site.gpus_per_node)
        self.found.items += problems
        shapes = [self._shape(backend, p) for p in placed]
        if self.found.failed:
            return None
        return self._assemble(
            source, backend, nodes, [(p, s) for p, s in zip(placed, shapes, strict=True) if s is not None]
        )

    def _shape(self, backend: Backend, placed: Placed) -> WorkerShape | None:
        shape, problems = backend.shape(placed.role, self.recipe.roles[placed.role], Layout(placed.gpus))
        self.found.items += [d for d in problems if d not in self.found.items]
        return shape

    def _assemble(
        self, source: str, backend: Backend, nodes: int, placed: Sequence[tuple[Placed, WorkerShape]]
    ) -> Plan | None:
        recipe, site = self.recipe, self.site
        ledger = Ledger(site.ephemeral_port_floor, site.nodes_share_host)
        ports = self._claim_workers(ledger, placed)
        infra, frontend_port = self._claim_infrastructure(ledger)
        if self.found.failed:
            return None
        env = dynamo_env(recipe.dynamo, INFRASTRUCTURE_NODE, infra)
        workers = tuple(self._worker(backend, p, s, ports, env) for p, s in placed)
        kv_events = any(process.publishers for worker in workers for process in worker.processes)
        mode = router_mode(recipe.frontend, kv_events)
        address = node_address(INFRASTRUCTURE_NODE)
        front = dynamo_frontend(recipe.frontend, mode, port=frontend_port, address=address, dynamo_env=env)
        if kv_events and mode != "kv":
            self.found.warning(
                "plan/kv-events-unused",
                f"KV events are published, but the frontend's router mode is `{mode}`, which ignores them",
                path="frontend.args",
                hint="use `router-mode: kv`, or turn `kv_events` off",
            )
        startup = recipe.health_check.seconds
        return Plan(
            version=PLAN_VERSION,
            name=recipe.name,
            source=source,
            nodes=nodes,
            gpus_per_node=site.gpus_per_node,
            model=Model(site.model_path, backend.served_name(recipe)),
            workers=workers,
            services=services(INFRASTRUCTURE_NODE, infra),
            frontends=(Service("frontend-0", INFRASTRUCTURE_NODE, front.argv, front.env, frontend_port),),
            claims=ledger.claims,
            checks=select_checks(workers, mode, recipe.checks),
            slurm=site.slurm,
            health=Health(startup=startup, gate=startup),
            environment=site.environment,
            runtime=Runtime(site.runtime_python, site.network_interface),
        )

    def _claim_workers(
        self, ledger: Ledger, placed: Sequence[tuple[Placed, WorkerShape]]
    ) -> Mapping[tuple[str, int], dict[str, int]]:
        """First port by purpose, for each (worker, node rank). What the user fixed is claimed before anything is chosen."""
        ports: dict[tuple[str, int], dict[str, int]] = {}
        for chosen_by_user in (True, False):
            for worker, shape in placed:
                for rank, process in enumerate(shape.processes):
                    mine = ports.setdefault((worker.name, rank), {})
                    for need in process.ports:
                        if (need.fixed is not None) is not chosen_by_user or need.purpose in mine:
                            continue
                        owner, nodes = f"{worker.name}.{rank}", worker.nodes[rank : rank + 1]
                        if need.common:
                            owner, nodes = worker.name, worker.nodes
                        if need.fixed is not None:
                            first, problems = (
                                need.fixed,
                                ledger.reserve(nodes, need.purpose, owner, need.fixed, need.count),
                            )
                        else:
                            first, problems = ledger.claim(nodes, need.purpose, owner, need.count)
                        self.found.items += [replace(d, path=d.path or need.path) for d in problems]
                        for other in range(len(worker.nodes)) if need.common else (rank,):
                            ports.setdefault((worker.name, other), {})[need.purpose] = first
        return ports

    def _claim_infrastructure(self, ledger: Ledger) -> tuple[InfrastructurePorts, int]:
        def claim(purpose: str, owner: str) -> int:
            port, problems = ledger.claim((INFRASTRUCTURE_NODE,), purpose, owner)
            self.found.items += problems
            return port

        nats = claim("nats", "nats") if needs_nats(self.recipe.dynamo) else None
        infra = InfrastructurePorts(claim("etcd_client", "etcd"), claim("etcd_peer", "etcd"), nats)
        return infra, claim("frontend", "frontend-0")

    def _worker(
        self,
        backend: Backend,
        placed: Placed,
        shape: WorkerShape,
        ports: Mapping[tuple[str, int], Mapping[str, int]],
        env: Mapping[str, str],
    ) -> Worker:
        role = self.recipe.roles[placed.role]
        leader = node_address(placed.nodes[0])
        processes = []
        for rank, (node, process) in enumerate(zip(placed.nodes, shape.processes, strict=True)):
            mine = ports[placed.name, rank]
            context = ProcessContext(rank, len(placed.nodes), leader, mine, ports[placed.name, 0], self.site.model_path)
            command = backend.command(self.recipe, placed.role, shape, context)
            sidecar = None
            if process.sidecar and role.sidecar is not None:
                made = native_sidecar(
                    backend.name,
                    placed.role,
                    role.sidecar,
                    leader=rank == 0,
                    grpc_port=mine["grpc"],
                    system_port=mine["system"],
                    address=node_address(node),
                    leader_address=leader,
                    dynamo_env=env,
                )
                sidecar = Sidecar("serving" if rank == 0 else "telemetry", made.argv, made.env)
            devices = {self.site.visible_devices_env: ",".join(map(str, placed.gpus[rank]))}
            processes.append(
                Process(
                    name=f"{placed.name}.{rank}",
                    node=node,
                    node_rank=rank,
                    gpus=placed.gpus[rank],
                    argv=command.argv,
                    env={**devices, **command.env, **role.env},
                    ready_port=command.ready_port,
                    sidecar=sidecar,
                    publishers=tuple(Publisher(r, mine["kv_events"] + r) for r in process.publisher_ranks),
                )
            )
        return Worker(placed.name, placed.role, backend.name, placed.nodes, shape.dp_size, tuple(processes))


def _requests(recipe: Recipe, gpus: Mapping[str, int]) -> tuple[list[Request], int]:
    """One placement request a role, and the nodes of the job: prefill first, then decode, unless it is colocated."""
    requests: list[Request] = []
    nodes = 0
    for name, role in recipe.roles.items():
        if isinstance(role.nodes, int):
            first, count = nodes, role.nodes
            nodes += role.nodes
        else:
            first, count = requests[-1].first_node, requests[-1].nodes
        requests.append(Request(name, role.workers, gpus[name], first, count, recipe.resources.spread_workers))
    return requests, nodes


def _gpus_per_worker(role: Role, gpus_per_node: int) -> int:
    """Where the recipe does not say: the role's nodes, shared evenly by its workers (a colocated role has no nodes of its own)."""
    nodes = role.nodes if isinstance(role.nodes, int) else 1
    return max(nodes * gpus_per_node // role.workers, 1)


def _located(diagnostic: Diagnostic, loaded: LoadedRecipe) -> Diagnostic:
    if diagnostic.span is None and diagnostic.path:
        return replace(diagnostic, span=loaded.span(diagnostic.path))
    return diagnostic
