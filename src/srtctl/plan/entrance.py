"""How requests come in: the frontend, the services it needs, and the endpoint that clients use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from srtctl.diagnostics import Collector
from srtctl.frontends import (
    DYNAMO,
    Target,
    dynamo_frontend,
    dynamo_frontend_env,
    has_process,
    is_direct,
    router_mode,
    router_of,
)
from srtctl.plan.heads import Heads
from srtctl.plan.infrastructure import InfrastructurePorts, dynamo_env, needs_nats, services
from srtctl.plan.model import Endpoint, Service, Worker, node_address
from srtctl.plan.ports import Ledger
from srtctl.recipe.model import Recipe

FRONTEND = "frontend-0"


@dataclass(frozen=True, slots=True)
class Opened:
    """How requests come in. `mode` is Dynamo's router mode, empty where it does not route; `files` are what the
    frontend reads."""

    frontends: tuple[Service, ...]
    endpoint: Endpoint | None
    mode: str = ""
    files: Mapping[str, str] = field(default_factory=dict)


class Entrance:
    """Claims the ports of services and frontend, then makes them once the workers are known."""

    def __init__(self, recipe: Recipe, heads: Heads, ledger: Ledger, found: Collector) -> None:
        self._recipe, self._heads, self._found = recipe, heads, found
        self.services: tuple[Service, ...] = ()
        self.dynamo_env: Mapping[str, str] = {}

        def claim(node: int, purpose: str, owner: str) -> int:
            port, problems = ledger.claim((node,), purpose, owner)
            found.items += problems
            return port

        if recipe.frontend.type == DYNAMO:
            node = heads.infra
            nats = claim(node, "nats", "nats") if needs_nats(recipe.dynamo) else None
            ports = InfrastructurePorts(claim(node, "etcd_client", "etcd"), claim(node, "etcd_peer", "etcd"), nats)
            self.services = services(node, ports)
            self.dynamo_env = dynamo_env(recipe.dynamo, node, ports)
        self._port = claim(heads.frontend, "frontend", FRONTEND) if has_process(recipe) else 0

    def open(self, workers: Sequence[Worker], ports: Mapping[tuple[str, int], Mapping[str, int]]) -> Opened:
        """The frontend processes and the endpoint, once the workers are known."""
        recipe, settings = self._recipe, self._recipe.frontend
        if is_direct(recipe):
            return Opened((), Endpoint(workers[0].nodes[0], ports[workers[0].name, 0]["http"]))
        if settings.type == DYNAMO:
            mode = self._router_mode()
            env = dynamo_frontend_env(self.dynamo_env, node_address(self._heads.frontend))
            return self._process(dynamo_frontend(settings, mode, port=self._port), env, mode, {})
        if router := router_of(recipe):
            command = router(settings, _targets(workers, ports), self._port)
            return self._process(command.argv, {}, "", command.files)
        return Opened((), None)

    def _process(self, argv: tuple[str, ...], env: Mapping[str, str], mode: str, files: Mapping[str, str]) -> Opened:
        node = self._heads.frontend
        frontend = Service(FRONTEND, node, argv, {**env, **self._recipe.frontend.env}, self._port, "", ())
        return Opened((frontend,), Endpoint(node, self._port), mode, files)

    def _router_mode(self) -> str:
        kv_events = any(role.kv_events is not None for role in self._recipe.roles.values())
        mode = router_mode(self._recipe.frontend, kv_events)
        if kv_events and mode != "kv":
            self._found.warning(
                "plan/kv-events-unused",
                f"KV events are published, but the frontend's router mode is `{mode}`, which ignores them",
                path="frontend.args.router-mode",
                hint="use `router-mode: kv`, or turn `kv_events` off",
            )
        return mode


def _targets(workers: Sequence[Worker], ports: Mapping[tuple[str, int], Mapping[str, int]]) -> list[Target]:
    """Every process that takes requests."""
    found = []
    for worker in workers:
        for process in worker.processes:
            if process.serves:
                mine = ports[worker.name, process.node_rank]
                found.append(Target(worker.role, node_address(process.node), mine["http"], mine.get("bootstrap")))
    return found
