"""Images: the name a recipe gives one, as the cluster's container runtime takes it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from srtctl.diagnostics import Collector, Span, did_you_mean

ContainerRuntime = Literal["none", "pyxis", "apptainer"]

#: Files that hold an image: enroot's squashfs, Apptainer's SIF.
_FILES = (".sqsh", ".sif")
#: The registry, then the image. What has a dot, a port, or is `localhost` is a registry,
#: anything else before the first slash belongs to the image (Docker's rule for references).
_REFERENCE = re.compile(r"(?:(?P<registry>[^/#]*[.:][^/#]*|localhost)[/#])?(?P<image>[^#]+)")


@dataclass(frozen=True, slots=True)
class Containers:
    """How processes enter images on this cluster. `folder` is the cluster profile's: relative paths begin there."""

    runtime: ContainerRuntime = "none"
    images: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""

    def path(self, path: str) -> str:
        """`path`, from the cluster profile's folder where it is relative."""
        return posixpath.normpath(posixpath.join(self.folder, path)) if self.folder else path


def resolve_image(name: str, path: str, containers: Containers, found: Collector, span: Span | None = None) -> str:
    """The image `name`, as `srun --container-image` or `apptainer exec` takes it; empty where processes run on the node itself.

    `name` is an alias of the cluster profile's `containers`, an image file, or an image reference with or without its
    registry and scheme. `path` is the recipe key that says it, `span` its place where that is not in the recipe.
    Source: the usage of pyxis (`--container-image`), enroot's import (`docker://[USER@][REGISTRY#]IMAGE[:TAG]`),
    Apptainer's `docker://[REGISTRY/]IMAGE[:TAG]`.
    """
    if containers.runtime == "none":
        return ""
    image = containers.images.get(name, name)
    if image == name and containers.images and not re.search(r"[/:#]", name) and not name.endswith(_FILES):
        found.error(
            "plan/container-alias",
            f"container `{name}` is neither an image nor an alias of this cluster",
            path=path,
            span=span,
            hint=did_you_mean(name, containers.images) or "name it in the cluster profile's `containers`",
        )
        return ""
    if image.startswith(("/", "./", "../")) or ("://" not in image and image.endswith(_FILES)):
        return containers.path(image)
    parts = _REFERENCE.fullmatch(image.removeprefix("docker://"))
    if parts is None or "://" in image.removeprefix("docker://"):
        return image  # a scheme that only this runtime knows
    if containers.runtime == "pyxis":
        return f"{parts['registry']}#{parts['image']}" if parts["registry"] else parts["image"]
    return "docker://" + "/".join(part for part in (parts["registry"], parts["image"]) if part)
