"""Which subnet and which ports a new sandbox takes: what this machine uses already, and the first that is free."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable
from ipaddress import IPv4Network

from srtctl.sandbox.errors import SandboxRefusedError
from srtctl.sandbox.run import run
from srtctl.sandbox.spec import (
    BRIDGE_PORTS,
    LOOPBACK_BLOCK_NODES,
    LOOPBACK_BLOCKS,
    SandboxSpec,
    Used,
    check_room,
    overlap,
    parse_subnet,
    subnet_candidates,
)


def used_ranges() -> list[Used]:
    """IPv4 addresses and routes of this machine. Raises SandboxError when `ip` cannot tell."""
    found = []
    for link in json.loads(run("ip", ["-json", "-4", "address", "show"]) or "[]"):
        for info in link.get("addr_info", ()):
            network = IPv4Network(f"{info['local']}/{info['prefixlen']}", strict=False)
            found.append(Used(network, f"interface {link['ifname']} has an address in"))
    for route in json.loads(run("ip", ["-json", "-4", "route", "show", "table", "all"]) or "[]"):
        if route["dst"] != "default":
            through = f"interface {route['dev']}" if "dev" in route else f"a route of type {route.get('type')}"
            found.append(Used(IPv4Network(route["dst"]), f"{through} leads to"))
    return found


def choose_subnet(spec: SandboxSpec, used: Iterable[Used]) -> IPv4Network:
    """The subnet that was asked for, else the first candidate that nothing uses. Raises SandboxRefusedError."""
    taken = list(used)
    if spec.subnet is not None:
        subnet = parse_subnet(spec.subnet)
        if use := overlap(subnet, taken):
            raise SandboxRefusedError(
                f"the subnet {subnet} is taken: {use.what} {use.network}",
                hint="leave --subnet out to get a free one, or give another",
            )
        return subnet
    free = next((subnet for subnet in subnet_candidates() if not overlap(subnet, taken)), None)
    if free is None:
        raise SandboxRefusedError(
            "no subnet is free for the sandbox", hint="give one with --subnet, or use --network loopback"
        )
    check_room(free, spec.nodes)
    return free


def choose_block(spec: SandboxSpec) -> int:
    """First port of a block of which the controller's and every node's port are free. Raises SandboxRefusedError."""
    if spec.nodes > LOOPBACK_BLOCK_NODES:
        raise SandboxRefusedError(
            f"a loopback sandbox has at most {LOOPBACK_BLOCK_NODES} nodes, not {spec.nodes}",
            hint="use --network netns as root",
        )
    for first in LOOPBACK_BLOCKS:
        if all(port_is_free("0.0.0.0", port) for port in range(first, first + 1 + spec.nodes)):
            return first
    raise SandboxRefusedError(
        f"no block of {spec.nodes + 1} ports is free between {LOOPBACK_BLOCKS[0]} and {BRIDGE_PORTS[0] - 1}",
        hint="end what listens there (`ss -ltnp` shows it), or ask for fewer nodes",
    )


def choose_controller_port() -> int:
    """A free port for slurmctld in netns mode. Raises SandboxRefusedError."""
    for port in BRIDGE_PORTS:
        if port_is_free("0.0.0.0", port):
            return port
    raise SandboxRefusedError("no port is free for slurmctld", hint="`ss -ltnp` shows what listens")


def port_is_free(address: str, port: int) -> bool:
    """True when a server could bind the TCP port now (connections that linger from an earlier one do not count)."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True
