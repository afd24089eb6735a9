"""What each container runs before its processes: the recipe's script, and the installation of Dynamo."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from srtctl.diagnostics import Collector
from srtctl.frontends import DYNAMO
from srtctl.plan.containers import Containers
from srtctl.plan.mounts import CONFIGS, WHEELS
from srtctl.recipe.dynamo import DynamoSource
from srtctl.recipe.model import Recipe

Commands = tuple[tuple[str, ...], ...]

#: Into the image's own Python and nowhere else: a home folder that happens to be mounted is shared by every node. Debian's
#: mark of an externally managed Python does not matter in a container that is thrown away.
PIP = ("env", "PIP_BREAK_SYSTEM_PACKAGES=1", "PIP_USER=0", "python3", "-m", "pip", "install", "--no-input")
_PACKAGES = ("ai-dynamo-runtime", "ai-dynamo")
#: Dynamo's repository: the Python bindings are a package of their own (`lib/bindings/python/pyproject.toml`).
_FOLDERS = ("lib/bindings/python", "")


@dataclass(frozen=True, slots=True)
class Setup:
    """The commands of each worker, and of each Dynamo frontend, in order."""

    worker: Commands = ()
    frontend: Commands = ()


def resolve_setup(recipe: Recipe, containers: Containers, found: Collector) -> Setup:
    """The recipe's script first, then Dynamo, as in v1. On the nodes themselves the script runs too, but nothing is installed."""
    script = _script(recipe, containers, found)
    source = recipe.dynamo.installed_source
    if source is None or recipe.frontend.type != DYNAMO:
        return Setup(script)
    if containers.runtime == "none":
        found.warning(
            "plan/dynamo-not-installed",
            "processes run on the node itself, where Dynamo is not installed: they use the nodes' own",
            path="dynamo.source" if recipe.dynamo.source else "dynamo.install",
            hint="`dynamo.install: false` says so",
        )
        return Setup(script)
    install = (install_command(source),)
    return Setup((*script, *install), install)


def install_command(source: DynamoSource) -> tuple[str, ...]:
    """How pip installs Dynamo from `source`. Package indexes are those of pip's own settings (`PIP_INDEX_URL` …)."""
    if source.pypi:
        return (*PIP, *(f"{name}=={source.pypi}" for name in _PACKAGES))
    if source.wheel:
        if "/" in source.wheel:
            return (*PIP, "--find-links", posixpath.dirname(source.wheel), source.wheel)
        return (*PIP, "--find-links", WHEELS, *(f"{name}=={source.wheel}" for name in _PACKAGES))
    return (*PIP, *(_built(source, name, folder) for name, folder in zip(_PACKAGES, _FOLDERS, strict=True)))


def _built(source: DynamoSource, name: str, folder: str) -> str:
    """A requirement that pip builds (PEP 508, pip's VCS support)."""
    return f"{name} @ git+{source.git}@{source.rev}" + (f"#subdirectory={folder}" if folder else "")


def _script(recipe: Recipe, containers: Containers, found: Collector) -> Commands:
    name = recipe.setup_script
    if name is None:
        return ()
    if name.startswith("/"):
        path = name
    elif containers.runtime != "none":
        path = posixpath.join(CONFIGS, name)
    else:
        path = containers.path(posixpath.join("configs", name))
        if not containers.folder:
            found.warning(
                "plan/setup-script",
                f"without a cluster profile `{path}` is looked for where the job is submitted from",
                path="setup_script",
                hint="give an absolute path",
            )
    return (("bash", path),)
