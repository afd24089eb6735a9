"""Dynamo's infrastructure: which services the planes need, and the environment that everybody shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from srtctl.plan.model import Service, node_address
from srtctl.recipe.model import Dynamo
from srtctl.references import bundle_file

ETCD, NATS = "etcd", "nats"
NATS_FILE = "nats.conf"


@dataclass(frozen=True, slots=True)
class InfrastructurePorts:
    """First claimed ports on the infrastructure node; `nats` is None where no plane uses it."""

    etcd_client: int
    etcd_peer: int
    nats: int | None


def needs_nats(dynamo: Dynamo) -> bool:
    return "nats" in (dynamo.request_plane, dynamo.event_plane)


def nats_files(max_payload_mb: int | None) -> dict[str, str]:
    """nats-server's configuration file, which alone takes a payload limit; none where its default holds."""
    return {} if max_payload_mb is None else {NATS_FILE: f"max_payload: {max_payload_mb * 1024 * 1024}\n"}


def services(node: int, ports: InfrastructurePorts, max_payload_mb: int | None) -> tuple[Service, ...]:
    """etcd, and NATS when a plane asks for it, on `node`. Their data lives in the job's node-local scratch folder."""
    address = node_address(node)
    client, peer = f"http://{address}:{ports.etcd_client}", f"http://{address}:{ports.etcd_peer}"
    etcd = ("etcd", "--name", "etcd", "--data-dir", "${SCRATCH}/etcd",
            "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"etcd={peer}")  # fmt: skip
    found = [Service(ETCD, node, etcd, {}, ports.etcd_client, "", ())]
    if ports.nats is not None:
        nats = (
            "nats-server",
            "--addr",
            address,
            "--port",
            str(ports.nats),
            "--jetstream",
            "--store_dir",
            "${SCRATCH}/nats",
            *(() if max_payload_mb is None else ("--config", bundle_file(NATS_FILE))),
        )
        found.append(Service(NATS, node, nats, {}, ports.nats, "", ()))
    return tuple(found)


def dynamo_env(dynamo: Dynamo, node: int, ports: InfrastructurePorts) -> Mapping[str, str]:
    """What frontend and sidecars must agree on (wire facts: ai-dynamo 1.6.1 reads these names)."""
    address = node_address(node)
    env = {
        "DYN_DISCOVERY_BACKEND": "etcd",
        "DYN_EVENT_PLANE": dynamo.event_plane,
        "DYN_REQUEST_PLANE": dynamo.request_plane,
        "DYN_SDK_DISABLE_ANSI_LOGGING": "1",
        "ETCD_ENDPOINTS": f"http://{address}:{ports.etcd_client}",
    }
    if ports.nats is not None:
        env["NATS_SERVER"] = f"nats://{address}:{ports.nats}"
    return env
