"""Choosing a subnet and ports against what a machine uses."""

from __future__ import annotations

import socket
from ipaddress import IPv4Network

import pytest

from srtctl.sandbox import addresses
from srtctl.sandbox.errors import SandboxRefusedError
from srtctl.sandbox.packages import find_program
from srtctl.sandbox.spec import LOOPBACK_BLOCKS, SandboxSpec, Used

FIRST = Used(IPv4Network("10.213.0.0/24"), "interface br0 has an address in")
TEN = Used(IPv4Network("10.0.0.0/8"), "interface tun0 leads to")


@pytest.mark.parametrize(
    ("subnet", "used", "expected"),
    [
        (None, [], "10.213.0.0/24"),
        (None, [FIRST], "10.213.1.0/24"),
        (None, [TEN], "172.30.0.0/24"),
        ("10.99.0.0/16", [FIRST], "10.99.0.0/16"),
    ],
)
def test_the_first_free_subnet_is_chosen(subnet: str | None, used: list[Used], expected: str) -> None:
    assert str(addresses.choose_subnet(SandboxSpec(subnet=subnet), used)) == expected


def test_a_taken_subnet_is_refused_with_its_user() -> None:
    with pytest.raises(
        SandboxRefusedError, match=r"10\.213\.0\.0/16 is taken: interface br0 has an address in 10\.213"
    ):
        addresses.choose_subnet(SandboxSpec(subnet="10.213.0.0/16"), [FIRST])


def test_more_nodes_than_a_default_subnet_holds() -> None:
    with pytest.raises(SandboxRefusedError, match="room for 253 nodes, not 254"):
        addresses.choose_subnet(SandboxSpec(nodes=254), [])


def test_a_block_with_a_taken_port_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = {LOOPBACK_BLOCKS[0] + 2, LOOPBACK_BLOCKS[1]}
    monkeypatch.setattr(addresses, "port_is_free", lambda _, port: port not in taken)
    assert addresses.choose_block(SandboxSpec(nodes=1)) == LOOPBACK_BLOCKS[0]  # its third port is not needed
    assert addresses.choose_block(SandboxSpec(nodes=2)) == LOOPBACK_BLOCKS[2]


def test_without_a_free_block_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "port_is_free", lambda *_: False)
    with pytest.raises(SandboxRefusedError, match="no block of 3 ports is free"):
        addresses.choose_block(SandboxSpec(nodes=2))
    with pytest.raises(SandboxRefusedError, match="no port is free"):
        addresses.choose_controller_port()


def test_too_many_nodes_for_a_block() -> None:
    with pytest.raises(SandboxRefusedError, match="at most 250 nodes, not 251"):
        addresses.choose_block(SandboxSpec(nodes=251, network="loopback"))


def test_a_port_is_taken_while_something_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not addresses.port_is_free("0.0.0.0", port)
    assert addresses.port_is_free("0.0.0.0", port)


@pytest.mark.skipif(find_program("ip") is None, reason="iproute2 is not installed")
def test_loopback_is_always_in_use() -> None:
    assert any(use.network.overlaps(IPv4Network("127.0.0.1/32")) for use in addresses.used_ranges())
