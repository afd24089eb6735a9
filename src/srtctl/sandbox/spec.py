"""What a sandbox is asked to be (`SandboxSpec`) and what it became (`Shape`): names, addresses, ports."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from ipaddress import IPv4Network
from typing import Any, Literal

from srtctl.sandbox.errors import SandboxRefusedError

Network = Literal["netns", "loopback"]
NetworkChoice = Literal["netns", "loopback", "auto"]

NAME_PATTERN = re.compile(r"[a-z][a-z0-9-]{0,30}")
DEFAULT_SUBNET = "10.213.0.0/24"
MAX_GPUS = 64
SLURMD_PORT = 6818
"""Every node of a netns sandbox has its own port space: all use Slurm's usual port."""

LOOPBACK_BLOCKS = tuple(range(26624, 32512, 256))
"""First ports of the blocks that a loopback sandbox may take: controller, then one port a node. All lie below the
ephemeral range (32768) and above the ports that plans hand out for engines and frontends."""
LOOPBACK_BLOCK_NODES = 250
BRIDGE_PORTS = range(32512, 32768)
"""Ports for the controller of a netns sandbox: apart from the blocks, as it binds them some time after the choice."""


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """A request. `subnet` None means: the first free one. `retain` keeps the remains of a failed boot."""

    name: str = "default"
    nodes: int = 2
    gpus_per_node: int = 1
    network: NetworkChoice = "auto"
    subnet: str | None = None
    retain: bool = False

    def __post_init__(self) -> None:
        """Raises SandboxRefusedError for a request that can never work."""
        if not NAME_PATTERN.fullmatch(self.name):
            raise SandboxRefusedError(
                f"`{self.name}` is not a sandbox name",
                hint="use a lower-case letter, then up to 30 lower-case letters, digits and dashes",
            )
        if self.nodes < 1:
            raise SandboxRefusedError(
                f"a sandbox needs at least 1 node, not {self.nodes}", hint="give --nodes 1 or more"
            )
        if not 0 <= self.gpus_per_node <= MAX_GPUS:
            raise SandboxRefusedError(
                f"--gpus-per-node {self.gpus_per_node} is out of range", hint=f"give 0 to {MAX_GPUS} (simulated) GPUs"
            )
        if self.subnet is not None:
            if self.network == "loopback":
                raise SandboxRefusedError(
                    "--subnet has no meaning with --network loopback: its nodes live on 127.x addresses",
                    hint="leave --subnet out",
                )
            check_room(parse_subnet(self.subnet), self.nodes)


@dataclass(frozen=True, slots=True)
class Node:
    """One node: Slurm's name for it, its address, and the port of its slurmd."""

    index: int
    name: str
    address: str
    port: int


@dataclass(frozen=True, slots=True)
class Shape:
    """A sandbox with every choice made. `controller` is slurmctld's address, `host` this machine's short name."""

    name: str
    network: Network
    subnet: str
    gpus_per_node: int
    host: str
    controller: str
    controller_port: int
    nodes: tuple[Node, ...]

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready data that `from_dict` reads back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Shape:
        """The inverse of `as_dict`. Raises KeyError or TypeError when the data is something else."""
        return cls(**{**data, "nodes": tuple(Node(**node) for node in data["nodes"])})

    def differences(self, spec: SandboxSpec) -> list[str]:
        """How this sandbox differs from what `spec` asks for, in words; empty when it satisfies it."""
        found = []
        if len(self.nodes) != spec.nodes:
            found.append(f"{len(self.nodes)} nodes, not {spec.nodes}")
        if self.gpus_per_node != spec.gpus_per_node:
            found.append(f"{self.gpus_per_node} GPUs a node, not {spec.gpus_per_node}")
        if spec.network not in ("auto", self.network):
            found.append(f"network {self.network}, not {spec.network}")
        if spec.subnet is not None and IPv4Network(self.subnet) != parse_subnet(spec.subnet):
            found.append(f"subnet {self.subnet}, not {spec.subnet}")
        return found


def netns_shape(spec: SandboxSpec, subnet: IPv4Network, host: str, controller_port: int) -> Shape:
    """The shape of a netns sandbox: the subnet's first address is the host's (the bridge), the next are the nodes'."""
    base = subnet.network_address
    nodes = tuple(Node(i, node_name(i), str(base + 2 + i), SLURMD_PORT) for i in range(spec.nodes))
    return Shape(spec.name, "netns", str(subnet), spec.gpus_per_node, host, str(base + 1), controller_port, nodes)


def loopback_shape(spec: SandboxSpec, first_port: int, host: str) -> Shape:
    """The shape of a loopback sandbox on the port block that starts at `first_port` (one of LOOPBACK_BLOCKS).

    The block's number is also the third octet of the node addresses, so that two sandboxes share no address.
    """
    subnet = IPv4Network(f"127.213.{LOOPBACK_BLOCKS.index(first_port)}.0/24")
    nodes = tuple(
        Node(i, node_name(i), str(subnet.network_address + 1 + i), first_port + 1 + i) for i in range(spec.nodes)
    )
    return Shape(spec.name, "loopback", str(subnet), spec.gpus_per_node, host, "127.0.0.1", first_port, nodes)


def node_name(index: int) -> str:
    """Slurm's name of a node."""
    return f"sandbox-{index}"


def namespace_name(sandbox: str, index: int) -> str:
    """Name under /run/netns of a node's network namespace."""
    return f"srtctl-{sandbox}-{index}"


def namespace_pattern(sandbox: str) -> re.Pattern[str]:
    """Matches (fullmatch) the namespace names of this sandbox and of no other."""
    return re.compile(rf"srtctl-{re.escape(sandbox)}-\d+")


def bridge_name(sandbox: str) -> str:
    """Name of the bridge: short enough that 15 characters (IFNAMSIZ) also hold a node's suffix."""
    return "srt" + hashlib.sha256(sandbox.encode()).hexdigest()[:6]


def veth_name(sandbox: str, index: int) -> str:
    """Name of the host's end of a node's cable."""
    return f"{bridge_name(sandbox)}-{index}"


def parse_subnet(text: str) -> IPv4Network:
    """The network that `text` names. Raises SandboxRefusedError when it is none."""
    try:
        return IPv4Network(text)
    except ValueError as error:
        raise SandboxRefusedError(
            f"`{text}` is not a subnet: {error}", hint=f"for example --subnet {DEFAULT_SUBNET}"
        ) from error


def check_room(subnet: IPv4Network, nodes: int) -> None:
    """Raises SandboxRefusedError when the subnet cannot hold the nodes, the host and its two reserved addresses."""
    room = subnet.num_addresses - 3
    if nodes > room:
        wanted = 32 - (nodes + 2).bit_length()
        raise SandboxRefusedError(
            f"{subnet} has room for {max(room, 0)} nodes, not {nodes}",
            hint=f"give a larger one, for example --subnet 10.208.0.0/{wanted}",
        )


def subnet_candidates() -> Iterator[IPv4Network]:
    """Subnets to try when none is given: 10.213.0.0/24 and its neighbours, then two ranges that few sites route."""
    for prefix in ("10.213", "172.30", "198.18"):
        for third in range(256):
            yield IPv4Network(f"{prefix}.{third}.0/24")


@dataclass(frozen=True, slots=True)
class Used:
    """An address range that this machine uses already; `what` comes before it (`interface eth0 leads to`)."""

    network: IPv4Network
    what: str


def overlap(subnet: IPv4Network, used: Iterable[Used]) -> Used | None:
    """The first use that overlaps `subnet`, or None.

    Routes shorter than /8 count as default routes (a VPN splits the world into 0.0.0.0/1 and 128.0.0.0/1): a more
    specific route is meant to win over them.
    """
    return next((use for use in used if use.network.prefixlen >= 8 and use.network.overlaps(subnet)), None)
