"""Recipe and cluster profile to plan: the order of decisions, each made in its own module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from srtctl.backends import BACKENDS
from srtctl.backends.base import Backend, Layout, WorkerShape
from srtctl.backends.openengine import check_openengine
from srtctl.benchmarks import check_benchmark
from srtctl.cluster.load import LoadedCluster
from srtctl.diagnostics import Collector, Diagnostic
from srtctl.frontends import check_frontend, check_kind
from srtctl.plan.client import LoadPoint, make_client
from srtctl.plan.direct import check_direct
from srtctl.plan.entrance import Entrance
from srtctl.plan.environment import check_environment
from srtctl.plan.extras import Extras
from srtctl.plan.heads import Heads, place_heads
from srtctl.plan.inside import resolve_inside
from srtctl.plan.model import PLAN_VERSION, Health, Model, Plan, Runtime
from srtctl.plan.placement import Placed, Request, place
from srtctl.plan.ports import Ledger
from srtctl.plan.sbatch import check_sbatch
from srtctl.plan.selection import select_checks
from srtctl.plan.site import Site, resolve_site
from srtctl.plan.workers import WorkerFactory
from srtctl.recipe.load import LoadedRecipe
from srtctl.recipe.model import Recipe, Role


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
    site = resolve_site(recipe, cluster, found)
    found.items += check_environment(recipe, cluster, site.visible_devices_env)
    found.items += check_sbatch(recipe, cluster)
    inside = resolve_inside(recipe, cluster, site, found)
    plan = _Builder(recipe, site, found).build(loaded.document.file)
    diagnostics += [_located(d, loaded) for d in found.items]
    if plan is None or any(d.severity == "error" for d in diagnostics):
        return BuildResult(None, tuple(diagnostics))
    return BuildResult(replace(inside.surround(plan), warnings=tuple(diagnostics)), tuple(diagnostics))


@dataclass(slots=True)
class _Builder:
    recipe: Recipe
    site: Site
    found: Collector
    _shapes: dict[tuple[str, Layout], WorkerShape | None] = field(default_factory=dict)

    def build(self, source: str) -> Plan | None:
        recipe, site = self.recipe, self.site
        backend = BACKENDS[recipe.engine.type]
        gpus = {name: role.gpus or _gpus_per_worker(role, site.gpus_per_node) for name, role in recipe.roles.items()}
        self.found.items += backend.check_recipe(recipe)
        broken = {name for name in recipe.roles if self._add(backend.check(recipe, name, gpus[name]))}
        self.found.items += check_frontend(recipe)
        self.found.items += check_kind(recipe)
        requests, worker_nodes = _requests(recipe, gpus)
        placed, problems = place(requests, site.gpus_per_node)
        self.found.items += problems
        self.found.items += check_direct(recipe, placed)
        self.found.items += check_benchmark(recipe.benchmark, recipe.engine.type)
        heads = place_heads(recipe, worker_nodes, self.found)
        shapes = [None if p.role in broken else self._shape(backend, p) for p in placed]
        if self.found.failed:
            return None
        pairs = [(p.shared_by(len(s.processes)), s) for p, s in zip(placed, shapes, strict=True) if s is not None]
        return self._assemble(source, backend, heads, pairs)

    def _add(self, found: list[Diagnostic]) -> bool:
        """Note what was found; whether an error is among it."""
        self.found.items += found
        return any(d.severity == "error" for d in found)

    def _shape(self, backend: Backend, placed: Placed) -> WorkerShape | None:
        """Asked once for all workers of a role that lie alike: a plan has few kinds of workers, and may have thousands."""
        key = placed.role, Layout(placed.gpus)
        if key not in self._shapes:
            shape, problems = backend.shape(self.recipe, *key)
            if shape is not None:
                problems = [*problems, *check_openengine(backend.name, self.recipe, placed.role, shape)]
            self._shapes[key] = shape
            self.found.items += [d for d in problems if d not in self.found.items]
        return self._shapes[key]

    def _assemble(
        self, source: str, backend: Backend, heads: Heads, placed: Sequence[tuple[Placed, WorkerShape]]
    ) -> Plan | None:
        recipe, site = self.recipe, self.site
        ledger = Ledger(site.ephemeral_port_floor, site.nodes_share_host, recipe.resources.port_offset)
        extras = Extras(recipe, heads, ledger, self.found)
        ports = self._claim_workers(ledger, placed)
        entrance = Entrance(recipe, heads, ledger, self.found)
        if self.found.failed:
            return None
        make = WorkerFactory(recipe, site, backend, entrance.dynamo_env)
        workers = tuple(make(p, s, [ports[p.name, rank] for rank in range(len(p.nodes))]) for p, s in placed)
        opened = entrance.open(workers, ports)
        model = Model(site.model_path, backend.served_name(recipe, site.model_path))
        load = LoadPoint(heads.benchmark, opened.endpoint, ports)
        startup = recipe.health_check.seconds
        return Plan(
            version=PLAN_VERSION,
            name=recipe.name,
            source=source,
            nodes=heads.total,
            gpus_per_node=site.gpus_per_node,
            model=model,
            workers=workers,
            services=(
                *entrance.services,
                *opened.proxies,
                *extras.services(entrance.dynamo_env, site.gpus_per_node, site.containers),
            ),
            frontends=opened.frontends,
            endpoint=opened.endpoint,
            client=make_client(recipe, model, site.gpus_per_node, workers, load, self.found),
            claims=ledger.claims,
            checks=select_checks(workers, opened.mode, recipe.checks, self.found),
            slurm=site.slurm,
            health=Health(startup=startup, gate=startup),
            environment=site.environment,
            identity=recipe.identity.table,
            files={**_engine_files(backend, recipe), **opened.files},
            runtime=Runtime(site.runtime_python, site.network_interface, site.mpi, "none", ()),
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
                            first = need.fixed
                            problems = ledger.reserve(nodes, need.purpose, owner, first, need.count, need.path)
                        else:
                            first, problems = ledger.claim(nodes, need.purpose, owner, need.count)
                        # Workers of one role share their flags: a mistake in one is said once, for the first it hits.
                        self.found.items += [d for d in problems if not any(map(d.same_places, self.found.items))]
                        for other in range(len(worker.nodes)) if need.common else (rank,):
                            ports.setdefault((worker.name, other), {})[need.purpose] = first
        return ports


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


def _engine_files(backend: Backend, recipe: Recipe) -> dict[str, str]:
    return {name: text for role in recipe.roles for name, text in backend.files(recipe, role).items()}


def _gpus_per_worker(role: Role, gpus_per_node: int) -> int:
    """Where the recipe does not say: the role's nodes, shared evenly by its workers (a colocated role has no nodes of its own)."""
    nodes = role.nodes if isinstance(role.nodes, int) else 1
    return max(nodes * gpus_per_node // role.workers, 1)


def _located(diagnostic: Diagnostic, loaded: LoadedRecipe) -> Diagnostic:
    """With the places of its recipe paths; what is about the profile has its place already, or none."""
    related = tuple(
        replace(other, span=loaded.span(other.path)) if other.span is None and other.path else other
        for other in diagnostic.related
    )
    span = diagnostic.span
    if span is None and diagnostic.path and not diagnostic.path.startswith("cluster."):
        span = loaded.span(diagnostic.path, key=diagnostic.code == "recipe/unknown-key")
    return replace(diagnostic, span=span, related=related)
