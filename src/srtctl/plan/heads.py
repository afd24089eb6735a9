"""Where everything runs that is not a worker: etcd and NATS, the frontend, the source of the load."""

from __future__ import annotations

from dataclasses import dataclass

from srtctl.diagnostics import Collector
from srtctl.recipe.model import Frontend, Placement, Recipe
from srtctl.recipe.services import ServicePlacement


@dataclass(frozen=True, slots=True)
class Heads:
    """Node indices; `total` is what the job asks for. Dedicated nodes follow the workers', so those keep their indices.

    The first of `frontends` is where clients send their requests; `services` are as in the recipe.
    """

    infra: int
    frontends: tuple[int, ...]
    benchmark: int
    services: tuple[int, ...]
    total: int


def place_heads(recipe: Recipe, worker_nodes: int, found: Collector) -> Heads:
    """The nodes that `placement` keys ask for; a node that the job does not have is a finding."""
    total = worker_nodes

    def resolve(placement: Placement | ServicePlacement, path: str) -> int:
        nonlocal total
        if placement.node == "infra":
            return infra
        if placement.node == "dedicated":
            total += 1
            return total - 1
        if placement.node >= worker_nodes:
            found.error(
                "placement/no-such-node",
                f"`{path}` is {placement.node}, but the workers' nodes are 0 to {worker_nodes - 1}",
                path=path,
                hint="nodes are counted from 0; `dedicated` adds one",
            )
            return 0
        return placement.node

    infra = resolve(recipe.infra.placement, "infra.placement.node")
    frontend = resolve(recipe.frontend.placement, "frontend.placement.node")
    benchmark = resolve(recipe.benchmark.placement, "benchmark.placement.node")
    services = tuple(
        resolve(service.placement, f"services.{index}.placement.node") if service.enabled else 0
        for index, service in enumerate(recipe.services)
    )
    frontends = _frontends(recipe, frontend, worker_nodes)
    _warn_of_idle(recipe.frontend, len(frontends), found)
    return Heads(infra, frontends, benchmark, services, total)


def _frontends(recipe: Recipe, first: int, worker_nodes: int) -> tuple[int, ...]:
    """One node a frontend: the first, then the workers' nodes after it, round to those before it."""
    settings = recipe.frontend
    if not settings.enable_multiple_frontends:
        return (first,)
    order = (first, *range(first + 1, worker_nodes), *range(min(first, worker_nodes)))
    return order[: 1 + settings.num_additional_frontends]


def _warn_of_idle(settings: Frontend, frontends: int, found: Collector) -> None:
    """A warning for each setting of nginx that reaches nothing, as written by somebody who expects it to."""
    if frontends == 1:
        more = (
            "workers on several nodes" if settings.num_additional_frontends else "`num_additional_frontends: 1` or more"
        )
        several = more if settings.enable_multiple_frontends else "`enable_multiple_frontends: true`"
        reason, hint = "one frontend has no nginx before it", f"remove it: several frontends need {several}"
        idle = [name for name in ("nginx_session_affinity", "nginx_raise_ulimit") if getattr(settings, name)]
    else:
        reason, hint = "`nginx_session_affinity` is off", "set `nginx_session_affinity: true`, or remove it"
        header = "nginx_session_affinity_header"
        idle = [header] if header in settings.model_fields_set and not settings.nginx_session_affinity else []
    for name in idle:
        found.warning("plan/nginx-unused", f"`{name}` changes nothing: {reason}", path=f"frontend.{name}", hint=hint)
