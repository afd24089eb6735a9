"""How requests come in: the frontend, the services it needs, and the endpoint that clients use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from srtctl.diagnostics import Collector
from srtctl.frontends import (
    DYNAMO,
    NGINX,
    Target,
    dynamo_frontend,
    dynamo_frontend_env,
    has_process,
    is_direct,
    nginx,
    router_mode,
    router_of,
)
from srtctl.plan.direct import frontend_env
from srtctl.plan.heads import Heads
from srtctl.plan.infrastructure import InfrastructurePorts, dynamo_env, nats_files, needs_nats, services
from srtctl.plan.model import Endpoint, Service, Worker, node_address
from srtctl.plan.ports import Ledger
from srtctl.recipe.model import Recipe


@dataclass(frozen=True, slots=True)
class Opened:
    """How requests come in. `proxies` stand before several frontends; `mode` is Dynamo's router mode, empty where it
    does not route; `files` are what all of it reads."""

    frontends: tuple[Service, ...]
    endpoint: Endpoint | None
    proxies: tuple[Service, ...] = ()
    mode: str = ""
    files: Mapping[str, str] = field(default_factory=dict)


class Entrance:
    """Claims the ports of services and frontends, then makes them once the workers are known."""

    def __init__(self, recipe: Recipe, heads: Heads, ledger: Ledger, found: Collector) -> None:
        self._recipe, self._found = recipe, found
        self.services: tuple[Service, ...] = ()
        self.dynamo_env: Mapping[str, str] = {}

        def claim(node: int, purpose: str, owner: str) -> int:
            port, problems = ledger.claim((node,), purpose, owner)
            found.items += problems
            return port

        limit = recipe.infra.nats_max_payload_mb
        with_nats = recipe.frontend.type == DYNAMO and needs_nats(recipe.dynamo)
        self._files = nats_files(limit) if with_nats else {}
        if limit is not None and not with_nats:
            found.warning(
                "plan/nats-unused",
                "a limit for NATS is set, but neither plane uses NATS, so it is not started",
                path="infra.nats_max_payload_mb",
                hint="remove it, or set `dynamo.request_plane: nats`",
            )
        if recipe.frontend.type == DYNAMO:
            node = heads.infra
            nats = claim(node, "nats", "nats") if with_nats else None
            ports = InfrastructurePorts(claim(node, "etcd_client", "etcd"), claim(node, "etcd_peer", "etcd"), nats)
            self.services = services(node, ports, limit)
            self.dynamo_env = dynamo_env(recipe.dynamo, node, ports)
        nodes = heads.frontends if has_process(recipe) else ()
        behind = len(nodes) > 1
        self._nginx = claim(nodes[0], "nginx", NGINX) if behind else None
        purpose = "behind_nginx" if behind else "frontend"
        named = [(f"frontend-{index}", node) for index, node in enumerate(nodes)]
        self._places = [(name, node, claim(node, purpose, name)) for name, node in named]

    def open(self, workers: Sequence[Worker], ports: Mapping[tuple[str, int], Mapping[str, int]]) -> Opened:
        """The frontend processes and the endpoint, once the workers are known."""
        recipe, settings = self._recipe, self._recipe.frontend
        if is_direct(recipe):
            return Opened((), Endpoint(workers[0].nodes[0], ports[workers[0].name, 0]["http"]))
        if settings.type == DYNAMO:
            return self._dynamo()
        if router := router_of(recipe):
            [(name, node, port)] = self._places
            command = router(settings, _targets(workers, ports), port)
            frontend = Service(name, node, command.argv, dict(settings.env), port, "", ())
            return Opened((frontend,), Endpoint(node, port), files=command.files)
        return Opened((), None)

    def _dynamo(self) -> Opened:
        settings, mode = self._recipe.frontend, self._router_mode()
        frontends = tuple(
            Service(
                name,
                node,
                dynamo_frontend(settings, mode, port=port),
                dynamo_frontend_env(self.dynamo_env, node_address(node)) | frontend_env(self._recipe) | settings.env,
                port,
                "",
                (),
            )
            for name, node, port in self._places
        )
        first, files = frontends[0], self._files
        if self._nginx is None:
            return Opened(frontends, Endpoint(first.node, self._places[0][2]), mode=mode, files=files)
        servers = [(f.name, f"{node_address(f.node)}:{f.port}") for f in frontends]
        command = nginx(settings, self._nginx, servers)
        proxy = Service(NGINX, first.node, command.argv, {}, self._nginx, "", ())
        return Opened(frontends, Endpoint(first.node, self._nginx), (proxy,), mode, {**files, **command.files})

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
