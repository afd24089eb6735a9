"""Everything that recipe and cluster profile decide together: who wins, and what is assumed where neither says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from srtctl.cluster.load import LoadedCluster
from srtctl.cluster.model import ClusterProfile
from srtctl.diagnostics import Collector, did_you_mean
from srtctl.plan.containers import Containers
from srtctl.plan.model import SlurmRequest
from srtctl.recipe.model import Recipe

DEFAULT_GPUS_PER_NODE = 8


@dataclass(frozen=True, slots=True)
class Site:
    """The recipe's wishes on this cluster, resolved."""

    gpus_per_node: int
    model_path: str
    slurm: SlurmRequest
    environment: Mapping[str, str]
    ephemeral_port_floor: int
    nodes_share_host: bool
    visible_devices_env: str
    runtime_python: str
    network_interface: str | None
    mpi: str
    containers: Containers


def resolve_site(recipe: Recipe, cluster: LoadedCluster, found: Collector) -> Site:
    """Recipe over profile over plain defaults; what had to be assumed becomes one warning."""
    profile = cluster.profile or ClusterProfile()
    assumed = []
    gpus_per_node = recipe.resources.gpus_per_node or profile.gpus_per_node
    if gpus_per_node is None:
        gpus_per_node = DEFAULT_GPUS_PER_NODE
        assumed.append(f"{gpus_per_node} GPUs a node")
    if cluster.path is None:
        assumed += [
            "engines run without a container",
            f"an ephemeral port range from {profile.ephemeral_port_floor} up",
        ]
    if assumed:
        found.warning(
            "plan/assumed",
            f"{'no cluster profile' if cluster.path is None else 'the cluster profile does not say'}: assuming {', '.join(assumed)}",
            hint="write a srtslurm.yaml, or name one with --cluster",
        )
    if not profile.use_exclusive_sbatch_directive and not recipe.resources.port_offset:
        found.warning(
            "plan/shared-nodes",
            "the job does not ask for whole nodes (`use_exclusive_sbatch_directive: false`): another run may hold the same ports",
            path="resources",
            hint="give runs that may meet different `resources.port_offset`; a busy port stops a run before it starts",
        )
    slurm = SlurmRequest(
        time_limit=recipe.slurm.time_limit or profile.default_time_limit,
        account=recipe.slurm.account or profile.default_account,
        partition=recipe.slurm.partition or profile.default_partition,
        gpus_directive=profile.use_gpus_per_node_directive,
        exclusive=profile.use_exclusive_sbatch_directive,
        segment=profile.use_segment_sbatch_directive,
        directives={**profile.default_sbatch_directives, **recipe.sbatch_directives},
    )
    return Site(
        gpus_per_node=gpus_per_node,
        model_path=_model_path(recipe, profile, found),
        slurm=slurm,
        environment={**profile.env, **recipe.environment},
        ephemeral_port_floor=profile.ephemeral_port_floor,
        nodes_share_host=profile.nodes_share_host,
        visible_devices_env=profile.visible_devices_env or "CUDA_VISIBLE_DEVICES",
        runtime_python=profile.runtime_python,
        network_interface=profile.network_interface,
        mpi=profile.mpi,
        containers=Containers(
            profile.container_runtime, profile.containers, str(cluster.path.parent) if cluster.path else ""
        ),
    )


def _model_path(recipe: Recipe, profile: ClusterProfile, found: Collector) -> str:
    """A profile alias, a path, or `hf:org/name` (which engines take as org/name)."""
    path = recipe.model.path
    if path in profile.model_paths:
        return profile.model_paths[path]
    if path.startswith("hf:"):
        return path.removeprefix("hf:")
    if "/" not in path and profile.model_paths:
        found.error(
            "plan/model-alias",
            f"model `{path}` is neither a path nor an alias of this cluster",
            path="model.path",
            hint=did_you_mean(path, profile.model_paths),
        )
    return path
