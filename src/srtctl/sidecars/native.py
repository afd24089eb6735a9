"""What every Dynamo sidecar shares, whatever the engine: settings of the recipe, and the environment that registers it."""

from __future__ import annotations

from collections.abc import Mapping

from srtctl.recipe.arguments import Arguments, words
from srtctl.recipe.model import Sidecar


def sidecar_settings(settings: Sidecar) -> tuple[str, ...]:
    """What the recipe adds to the command of a sidecar."""
    argv: list[str] = []
    if settings.startup_timeout is not None:
        argv += ["--grpc-startup-deadline-secs", str(settings.startup_timeout)]
    if isinstance(settings.args, list):
        argv += settings.args
    else:
        argv += [word for item in Arguments("sidecar.args", settings.args) for word in words(item)]
    return tuple(argv)


def worker_env(dynamo_env: Mapping[str, str], address: str, system_port: int) -> dict[str, str]:
    """The environment of a process that registers with Dynamo, on the node with that address.

    Nodes have several NICs: Dynamo is told which address to advertise instead of being left to guess. Engine and
    sidecar are stopped together, so there is nothing that could still drain: Dynamo's own waits (5 s, and 25 s before a
    prefill engine ends) would only delay the end.
    """
    return {
        **dynamo_env,
        "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": "0",
        "DYN_PREFILL_DRAIN_TIMEOUT_S": "0",
        "DYN_EVENT_PLANE_HOST": address,
        "DYN_SYSTEM_HOST": address,
        "DYN_SYSTEM_PORT": str(system_port),
        "DYN_TCP_RPC_HOST": address,
    }
