"""How requests come in: the frontend, the services it needs, and the endpoint that clients use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from srtctl.diagnostics import Collector, Diagnostic
from srtctl.frontends import Target, dynamo_frontend, dynamo_frontend_env, router_mode, sglang_router
from srtctl.plan.heads import Heads
from srtctl.plan.infrastructure import InfrastructurePorts, dynamo_env, needs_nats, services
from srtctl.plan.model import Endpoint, Service, Worker, node_address
from srtctl.plan.ports import Ledger
from srtctl.recipe.model import Recipe

FRONTEND = "frontend-0"

#: Frontends that run as a process of their own.
WITH_PROCESS = ("dynamo", "sglang-router")


def check_entrance(recipe: Recipe) -> Iterator[Diagnostic]:
    """What the kind of frontend rules out."""
    kind = recipe.frontend.type
    if kind == "dynamo":
        return
    for name, role in recipe.roles.items():
        if role.sidecar is not None:
            yield Diagnostic(
                "plan/sidecar-frontend",
                f"a sidecar registers its engine with Dynamo, which frontend `{kind}` does not use",
                f"roles.{name}.sidecar",
                hint="use `frontend.type: dynamo`, or remove the sidecar",
            )
    workers = sum(role.workers for role in recipe.roles.values())
    if kind == "sglang" and ("agg" not in recipe.roles or workers != 1):
        yield Diagnostic(
            "plan/direct-frontend",
            f"frontend `sglang` is one aggregated worker that clients talk to; this recipe has {workers} workers",
            "frontend.type",
            hint="use `sglang-router` or `dynamo` for several workers or prefill and decode",
        )


class Entrance:
    """Claims the ports of services and frontend, then makes them once the workers are known."""

    def __init__(self, recipe: Recipe, heads: Heads, ledger: Ledger, found: Collector) -> None:
        self._recipe, self._heads, self._found = recipe, heads, found
        self._dynamo = recipe.frontend.type == "dynamo"
        self.services: tuple[Service, ...] = ()
        self.dynamo_env: Mapping[str, str] = {}

        def claim(node: int, purpose: str, owner: str) -> int:
            port, problems = ledger.claim((node,), purpose, owner)
            found.items += problems
            return port

        if self._dynamo:
            node = heads.infra
            nats = claim(node, "nats", "nats") if needs_nats(recipe.dynamo) else None
            ports = InfrastructurePorts(claim(node, "etcd_client", "etcd"), claim(node, "etcd_peer", "etcd"), nats)
            self.services = services(node, ports)
            self.dynamo_env = dynamo_env(recipe.dynamo, node, ports)
        self._port = claim(heads.frontend, "frontend", FRONTEND) if recipe.frontend.type in WITH_PROCESS else 0

    def open(
        self, workers: Sequence[Worker], ports: Mapping[tuple[str, int], Mapping[str, int]]
    ) -> tuple[tuple[Service, ...], Endpoint | None, str]:
        """The frontend processes, the endpoint, and the router mode (empty where Dynamo does not route)."""
        kind, node = self._recipe.frontend.type, self._heads.frontend
        leaders = [(w, ports[w.name, 0]) for w in workers]
        if kind == "none":
            return (), None, ""
        if kind == "sglang":
            worker, mine = leaders[0]
            return (), Endpoint(worker.nodes[0], mine["http"]), ""
        if kind == "sglang-router":
            targets = [Target(w.role, node_address(w.nodes[0]), p["http"], p.get("bootstrap")) for w, p in leaders]
            argv, mode, env = sglang_router(self._recipe.frontend, targets, port=self._port), "", {}
        else:
            mode = self._router_mode(workers)
            argv = dynamo_frontend(self._recipe.frontend, mode, port=self._port)
            env = dynamo_frontend_env(self.dynamo_env, node_address(node))
        frontend = Service(FRONTEND, node, argv, {**env, **self._recipe.frontend.env}, self._port)
        return (frontend,), Endpoint(node, self._port), mode

    def _router_mode(self, workers: Sequence[Worker]) -> str:
        kv_events = any(process.publishers for worker in workers for process in worker.processes)
        mode = router_mode(self._recipe.frontend, kv_events)
        if kv_events and mode != "kv":
            self._found.warning(
                "plan/kv-events-unused",
                f"KV events are published, but the frontend's router mode is `{mode}`, which ignores them",
                path="frontend.args.router-mode",
                hint="use `router-mode: kv`, or turn `kv_events` off",
            )
        return mode
