"""What containers see of the nodes' file systems."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from srtctl.cluster.load import LoadedCluster
from srtctl.cluster.model import ClusterProfile
from srtctl.diagnostics import Collector, Span
from srtctl.plan.containers import Containers
from srtctl.reading.mounts import SPECIAL_SOURCES
from srtctl.recipe.model import Recipe

#: Where the v1 launcher mounted its folders; a recipe that speaks of one finds it there.
MODEL, LOGS, CONFIGS = "/model", "/logs", "/configs"
#: Wheels of Dynamo, for `dynamo.source.wheel`; v1 keeps them in this folder of its own.
WHEELS, WHEELS_SOURCE = "/wheelhouse", "wheelhouse/dynamo"

#: Apptainer mounts the host's /dev, and what is below it (apptainer.conf, `mount dev = yes`).
_SHARED_MEMORY = "/dev/shm"


def resolve_mounts(
    recipe: Recipe, cluster: LoadedCluster, containers: Containers, model_path: str, found: Collector
) -> tuple[str, ...]:
    """Every mount beside that of the run's folder, as `SOURCE:TARGET[:OPTIONS]`; none where processes run on the node itself.

    The last that mounts at a target wins: what srtctl mounts, the profile's, `extra_mount`, `container_mounts`.
    `${RUN_DIR}` stands for the run's folder, which only the job knows.
    """
    profile = cluster.profile or ClusterProfile()
    keys = {"container_mounts": recipe.container_mounts, "extra_mount": recipe.extra_mount}
    if containers.runtime == "none":
        if named := [mount for mounts in keys.values() for mount in mounts]:
            found.warning(
                "plan/mounts-unused",
                f"processes run on the node itself, where nothing is mounted: {', '.join(named)}",
                path=next(key for key, mounts in keys.items() if mounts),
                hint="set `container_runtime` in the cluster profile, or have these paths on the nodes",
            )
        return ()
    if model_path.startswith("/") and (ends := re.search(r"[,:\s]", model_path)):
        message = f"the model's folder {model_path} holds {ends[0]!r}, so that it cannot be mounted"
        found.error("plan/mount", message, path="model.path", hint="link it from a path without it")
        return ()
    by_target = {_target(mount): mount for mount in _own(recipe, containers, model_path)}
    sources: list[tuple[str, list[str], Span | None]] = [
        ("cluster.default_mounts", profile.default_mounts, cluster.span("default_mounts")),
        *((key, keys[key], None) for key in ("extra_mount", "container_mounts")),
    ]
    for path, mounts, span in sources:
        for target, many in Counter(map(_target, mounts)).items():
            if many > 1:
                message = f"{many} mounts at {target}: only the last of them counts"
                found.warning("plan/mount-twice", message, path=path, span=span, hint="remove the others")
        for mount in mounts:
            if _usable(mount, path, span, containers, found):
                by_target.pop(_target(mount), None)
                by_target[_target(mount)] = _placed(mount, containers)
    return tuple(by_target.values())


def _own(recipe: Recipe, containers: Containers, model_path: str) -> Iterator[str]:
    """The model at its own path, and what the recipe speaks of at the places of the v1 launcher."""
    text = recipe.model_dump_json()
    if model_path.startswith("/"):
        yield f"{model_path}:{model_path}"
        if _speaks_of(text, MODEL):
            yield f"{model_path}:{MODEL}"
    if _speaks_of(text, LOGS):
        yield f"${{RUN_DIR}}/logs:{LOGS}"
    script = recipe.setup_script
    if (script and not script.startswith("/")) or _speaks_of(text, CONFIGS):
        yield f"{containers.path('configs')}:{CONFIGS}"
    source = recipe.dynamo.installed_source
    if source and source.wheel and "/" not in source.wheel:
        yield f"{containers.path(WHEELS_SOURCE)}:{WHEELS}"


def _speaks_of(text: str, folder: str) -> bool:
    return re.search(rf"(?<![\w./}}-]){folder}(?![\w.-])", text) is not None


def _target(mount: str) -> str:
    return mount.split(":")[1]


def _placed(mount: str, containers: Containers) -> str:
    source, _, rest = mount.partition(":")
    return mount if source in SPECIAL_SOURCES else f"{containers.path(source)}:{rest}"


def _usable(mount: str, path: str, span: Span | None, containers: Containers, found: Collector) -> bool:
    """Whether this runtime can mount it; a finding if not."""
    source = mount.partition(":")[0]
    if unknown := re.search(r"[${~][^/]*", mount):
        found.error(
            "plan/mount",
            f"mount `{mount}` holds `{unknown[0]}`, which nothing fills in",
            path=path,
            span=span,
            hint="write the path out",
        )
    elif source not in SPECIAL_SOURCES or containers.runtime == "pyxis":
        return True
    elif source == "tmpfs" and _target(mount) == _SHARED_MEMORY:
        found.warning(
            "plan/mount-shared",
            f"mount `{mount}` is left out: with Apptainer the container has the node's own {_SHARED_MEMORY}",
            path=path,
            span=span,
        )
    else:
        found.error(
            "plan/mount",
            f"mount `{mount}` is one of enroot's, Apptainer has no such thing",
            path=path,
            span=span,
            hint="mount a folder of the node there",
        )
    return False
