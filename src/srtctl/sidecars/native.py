"""Dynamo's native sidecars: `python3 -m dynamo.<engine>.sidecar` beside an engine that serves its own gRPC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from srtctl.recipe.arguments import Arguments, words
from srtctl.recipe.model import Sidecar

#: Engine to sidecar module, as shipped in ai-dynamo 1.6.1.
SIDECAR_MODULES: Mapping[str, str] = MappingProxyType({"sglang": "dynamo.sglang.sidecar"})


@dataclass(frozen=True, slots=True)
class SidecarCommand:
    argv: tuple[str, ...]
    env: Mapping[str, str]


def native_sidecar(
    engine: str,
    role: str,
    settings: Sidecar,
    *,
    leader: bool,
    grpc_port: int,
    system_port: int,
    address: str,
    leader_address: str,
    dynamo_env: Mapping[str, str],
) -> SidecarCommand:
    """The sidecar of one process; `address` is that of its own node.

    A follower's is started with the endpoint alone: Dynamo reads `GetServerInfo` and selects telemetry mode itself.
    The bootstrap address goes to the prefill *leader's* sidecar only (srt-slurm #473).
    """
    argv = ["python3", "-m", SIDECAR_MODULES[engine], "--grpc-endpoint", f"127.0.0.1:{grpc_port}"]
    if role == "prefill" and leader:
        argv += ["--bootstrap-host", leader_address]
    if settings.startup_timeout is not None:
        argv += ["--grpc-startup-deadline-secs", str(settings.startup_timeout)]
    if isinstance(settings.args, list):
        argv += settings.args
    else:
        argv += [word for item in Arguments("sidecar.args", settings.args) for word in words(item)]
    return SidecarCommand(tuple(argv), worker_env(dynamo_env, address, system_port))


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
