"""What a plan's processes find around them: their image, its mounts, what is set up there, and how srun starts them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from srtctl.cluster.load import LoadedCluster
from srtctl.cluster.model import ClusterProfile
from srtctl.diagnostics import Collector
from srtctl.frontends import DYNAMO, NGINX
from srtctl.plan.containers import Containers, resolve_image
from srtctl.plan.infrastructure import ETCD, NATS
from srtctl.plan.model import Plan, Service
from srtctl.plan.mounts import resolve_mounts
from srtctl.plan.setup import Setup, resolve_setup
from srtctl.plan.site import Site
from srtctl.plan.srun import resolve_srun_options
from srtctl.recipe.model import Recipe


@dataclass(frozen=True, slots=True)
class Inside:
    """The surroundings of one recipe's processes, the same for all plans that it could become.

    `engine`, `service` and `nginx` are images, empty where processes run on the node itself.
    """

    containers: Containers
    engine: str
    service: str
    nginx: str
    mounts: tuple[str, ...]
    srun_options: Mapping[str, Mapping[str, str | None]]
    setup: Setup

    def surround(self, plan: Plan) -> Plan:
        """`plan` with its surroundings; an image that it names already stays."""
        setup = self.setup.frontend
        return replace(
            plan,
            workers=tuple(
                replace(w, image=self.engine, srun_options=self.srun_options[w.role], setup=self.setup.worker)
                for w in plan.workers
            ),
            services=tuple(replace(s, image=s.image or self._service_image(s)) for s in plan.services),
            frontends=tuple(replace(f, image=f.image or self.engine, setup=setup) for f in plan.frontends),
            client=replace(plan.client, image=plan.client.image or self.engine) if plan.client else None,
            runtime=replace(plan.runtime, container=self.containers.runtime, mounts=self.mounts),
        )

    def _service_image(self, service: Service) -> str:
        own = {NGINX: self.nginx, ETCD: self.service, NATS: self.service}
        return own.get(service.name, self.engine)


def resolve_inside(recipe: Recipe, cluster: LoadedCluster, site: Site, found: Collector) -> Inside:
    """What recipe and profile say of containers; findings for what this runtime cannot do."""
    profile, containers = cluster.profile or ClusterProfile(), site.containers
    engine = resolve_image(recipe.model.container, "model.container", containers, found)
    service, nginx = engine, ""
    if profile.service_container and recipe.frontend.type == DYNAMO:
        span = cluster.span("service_container")
        service = resolve_image(profile.service_container, "cluster.service_container", containers, found, span)
    if recipe.frontend.enable_multiple_frontends:
        nginx = resolve_image(recipe.frontend.nginx_container, "frontend.nginx_container", containers, found)
    return Inside(
        containers=containers,
        engine=engine,
        service=service,
        nginx=nginx,
        mounts=resolve_mounts(recipe, cluster, containers, site.model_path, found),
        srun_options=resolve_srun_options(recipe, containers.runtime, found),
        setup=resolve_setup(recipe, containers, found),
    )
