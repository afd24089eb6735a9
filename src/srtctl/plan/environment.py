"""Environment variables that srtctl sets itself: one that the user sets too would break what the plan says."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from srtctl.cluster.load import LoadedCluster
from srtctl.diagnostics import Diagnostic, Span
from srtctl.plan.ports import FAMILIES
from srtctl.recipe.model import Recipe

_VARIABLE = re.compile(r"\$[A-Za-z_]\w*|\$\{(?!RUN_DIR\}|SCRATCH\})[A-Za-z_]\w*\}")
_ADDRESS = "it is the address of the process's own node"
_CLAIMED = "it is an address and a claimed port"

#: What the plan gives the processes that talk to Dynamo, and why nobody else can.
OWNED: Mapping[str, str] = {
    "DYN_SYSTEM_PORT": f"each process gets a claimed port, at most {FAMILIES['system'].limit}",
    "DYN_SYSTEM_HOST": _ADDRESS,
    "DYN_TCP_RPC_HOST": _ADDRESS,
    "DYN_TCP_RESPONSE_STREAM_HOST": _ADDRESS,
    "DYN_EVENT_PLANE_HOST": _ADDRESS,
    "DYN_DISCOVERY_BACKEND": "workers are found through etcd",
    "ETCD_ENDPOINTS": _CLAIMED,
    "NATS_SERVER": _CLAIMED,
    "DYN_ADVERTISE_GRPC_ENDPOINT": f"{_CLAIMED}, where `direct_dispatch` asks for it",
    "DYN_ROUTER_DIRECT_DISPATCH": "it follows from `direct_dispatch`",
}


def check_environment(recipe: Recipe, cluster: LoadedCluster, visible_devices_env: str) -> Iterator[Diagnostic]:
    """A finding for each variable of recipe or profile that is the plan's; the planes may be repeated, not changed."""
    owned = {**OWNED, visible_devices_env: "the placement gives each process its GPUs"}
    planes = {
        "DYN_REQUEST_PLANE": ("dynamo.request_plane", recipe.dynamo.request_plane),
        "DYN_EVENT_PLANE": ("dynamo.event_plane", recipe.dynamo.event_plane),
    }
    for base, table, places in _tables(recipe, cluster):
        for name, value in table.items():
            path = f"{base}.{name}"
            if name in owned:
                message = f"`{name}` is set by srtctl"
                yield Diagnostic("plan/owned-env", message, path, places.get(name), f"remove it: {owned[name]}")
            elif name in planes and value != planes[name][1]:
                key, planned = planes[name]
                message = f"`{name}: {value}` contradicts `{key}`, which is `{planned}`"
                yield Diagnostic("plan/owned-env", message, path, places.get(name), f"remove it, and set `{key}`")
            elif found := _variable(value, path, places.get(name)):
                yield found
    if found := _variable(recipe.model.path, "model.path", None):
        yield found


def _variable(value: str, path: str, span: Span | None) -> Diagnostic | None:
    """A warning where a value is one variable of a shell: the public launcher reads it where it is started."""
    if not _VARIABLE.fullmatch(value):
        return None
    message = f"`{path}: {value}` is passed on as it is written: srtctl reads no variables of your shell"
    hint = "write the value itself" if span else f"give the value: `--set {path}=…`"
    return Diagnostic("plan/not-expanded", message, path, span, hint, severity="warning")


def _tables(
    recipe: Recipe, cluster: LoadedCluster
) -> Iterator[tuple[str, Mapping[str, str], Mapping[str, Span | None]]]:
    """Each environment with its dotted path, and the places of its variables where they are not in the recipe."""
    yield "environment", recipe.environment, {}
    yield "frontend.env", recipe.frontend.env, {}
    for name, role in recipe.roles.items():
        yield f"roles.{name}.env", role.env, {}
    if cluster.profile is not None:
        env = cluster.profile.env
        yield "cluster.env", env, {name: cluster.span(f"env.{name}") for name in env}
