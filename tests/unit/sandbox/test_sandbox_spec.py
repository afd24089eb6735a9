"""Requests, names, addresses: which are refused, what the others become."""

from __future__ import annotations

import re
from ipaddress import IPv4Network

import pytest

from srtctl.sandbox.errors import SandboxRefusedError
from srtctl.sandbox.spec import (
    BRIDGE_PORTS,
    LOOPBACK_BLOCKS,
    SandboxSpec,
    Shape,
    Used,
    bridge_name,
    check_room,
    loopback_shape,
    namespace_name,
    namespace_pattern,
    netns_shape,
    overlap,
    subnet_candidates,
    veth_name,
)

ETH0 = Used(IPv4Network("192.0.2.0/24"), "interface eth0 has an address in")
VPN = Used(IPv4Network("10.0.0.0/8"), "interface tun0 leads to")
HALF = Used(IPv4Network("0.0.0.0/1"), "interface tun0 leads to")
INSIDE = Used(IPv4Network("10.213.0.64/26"), "interface br0 leads to")
HOST = Used(IPv4Network("10.213.0.7/32"), "interface wg0 leads to")


@pytest.mark.parametrize(
    ("subnet", "used", "expected"),
    [
        ("10.213.0.0/24", [], None),
        ("10.213.0.0/24", [ETH0], None),
        ("192.0.2.0/24", [ETH0], ETH0),
        ("192.0.2.128/25", [ETH0], ETH0),
        ("192.0.0.0/16", [ETH0], ETH0),
        ("10.213.0.0/24", [ETH0, VPN], VPN),
        ("10.213.0.0/24", [INSIDE, VPN], INSIDE),
        ("10.213.0.0/24", [HOST], HOST),
        ("10.213.1.0/24", [HOST, INSIDE], None),
        ("10.213.0.0/24", [HALF], None),
    ],
)
def test_overlap(subnet: str, used: list[Used], expected: Used | None) -> None:
    assert overlap(IPv4Network(subnet), used) == expected


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"name": "Big"}, "not a sandbox name"),
        ({"name": "-a"}, "not a sandbox name"),
        ({"name": "a/../b"}, "not a sandbox name"),
        ({"name": "a" * 32}, "not a sandbox name"),
        ({"nodes": 0}, "at least 1 node"),
        ({"gpus_per_node": -1}, "out of range"),
        ({"gpus_per_node": 65}, "out of range"),
        ({"subnet": "10.213.0.1/24"}, "not a subnet"),
        ({"subnet": "here"}, "not a subnet"),
        ({"subnet": "fd00::/64"}, "not a subnet"),
        ({"subnet": "10.213.0.0/30", "nodes": 2}, "room for 1 nodes"),
        ({"subnet": "10.213.0.0/24", "network": "loopback"}, "no meaning"),
    ],
)
def test_a_request_that_can_never_work_is_refused(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(SandboxRefusedError, match=words) as caught:
        SandboxSpec(**arguments)  # type: ignore[arg-type]
    assert caught.value.hint
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("nodes", [254, 300, 1021, 1022, 4000])
def test_the_subnet_of_the_hint_has_room(nodes: int) -> None:
    with pytest.raises(SandboxRefusedError) as caught:
        check_room(IPv4Network("10.213.0.0/24"), nodes)
    advised = re.search(r"--subnet (\S+)", caught.value.hint)
    assert advised
    SandboxSpec(nodes=nodes, subnet=advised[1])


@pytest.mark.parametrize("name", ["default", "a", "z" * 31])
def test_interface_names_fit(name: str) -> None:
    assert len(veth_name(name, 99_999)) <= 15
    assert veth_name(name, 0).startswith(bridge_name(name))


def test_names_of_two_sandboxes_differ() -> None:
    assert bridge_name("default") != bridge_name("default-0")
    assert namespace_pattern("a").fullmatch(namespace_name("a", 12))
    assert not namespace_pattern("a").fullmatch(namespace_name("a-0", 1))
    assert not namespace_pattern("a-0").fullmatch(namespace_name("a", 0))


def test_netns_nodes_have_consecutive_addresses_and_one_port() -> None:
    shape = netns_shape(SandboxSpec(nodes=253), IPv4Network("10.213.0.0/24"), "vm", 26624)
    assert shape.controller == "10.213.0.1"
    assert [node.address for node in shape.nodes][:2] == ["10.213.0.2", "10.213.0.3"]
    assert shape.nodes[-1].address == "10.213.0.254"
    assert {node.port for node in shape.nodes} == {6818}


def test_loopback_nodes_have_ports_of_their_own_in_their_block() -> None:
    shapes = [loopback_shape(SandboxSpec(nodes=250), first, "vm") for first in LOOPBACK_BLOCKS]
    ports = [port for shape in shapes for port in (shape.controller_port, *(node.port for node in shape.nodes))]
    addresses = [node.address for shape in shapes for node in shape.nodes]
    assert len(set(ports)) == len(ports)
    assert len(set(addresses)) == len(addresses)
    assert not set(ports) & set(BRIDGE_PORTS)
    assert max(*ports, *BRIDGE_PORTS) < 32768


def test_shape_survives_json() -> None:
    shape = netns_shape(SandboxSpec(nodes=3, gpus_per_node=8), IPv4Network("10.213.4.0/24"), "vm", 26624)
    assert Shape.from_dict(shape.as_dict()) == shape


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (SandboxSpec(), []),
        (SandboxSpec(network="netns", subnet="10.213.0.0/24"), []),
        (SandboxSpec(nodes=3), ["2 nodes, not 3"]),
        (SandboxSpec(gpus_per_node=4), ["1 GPUs a node, not 4"]),
        (SandboxSpec(network="loopback", nodes=1), ["2 nodes, not 1", "network netns, not loopback"]),
        (SandboxSpec(subnet="10.213.1.0/24"), ["subnet 10.213.0.0/24, not 10.213.1.0/24"]),
    ],
)
def test_differences(spec: SandboxSpec, expected: list[str]) -> None:
    shape = netns_shape(SandboxSpec(), IPv4Network("10.213.0.0/24"), "vm", 26624)
    assert shape.differences(spec) == expected


def test_candidates_are_private_and_distinct() -> None:
    found = list(subnet_candidates())
    assert str(found[0]) == "10.213.0.0/24"
    assert len(set(found)) == len(found)
    assert all(subnet.is_private for subnet in found)
