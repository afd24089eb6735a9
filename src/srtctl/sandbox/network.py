"""Network namespaces, bridge and cables of a netns sandbox."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Network
from pathlib import Path

from srtctl.sandbox.errors import SandboxError
from srtctl.sandbox.mounts import mount_points
from srtctl.sandbox.run import run
from srtctl.sandbox.spec import Shape, bridge_name, namespace_name, namespace_pattern, veth_name

NETNS_DIR = Path("/run/netns")
OWNER_PREFIX = "srtctl sandbox "
PARALLEL = 8
# In a throw-away namespace: are all the parts there that a sandbox is made of? Leaves nothing behind.
TRIAL = "ip link add br9 type bridge && ip link add ve9 type veth peer name ve8 && mount --bind /etc/hosts /etc/hosts"


def why_not_netns() -> str:
    """Why this user cannot have network namespaces here, in a few words; empty when they work."""
    if os.geteuid() != 0:
        return "not root"
    try:
        run("unshare", ["--net", "--uts", "--mount", "/bin/sh", "-c", TRIAL])
    except SandboxError as error:
        return f"network namespaces do not work here ({error.message.rpartition('failed: ')[2]})"
    return ""


def owner(sandbox: str) -> str | None:
    """State folder of the sandbox that has the bridge of this name; None without one, empty when it does not say."""
    try:
        alias = (Path("/sys/class/net") / bridge_name(sandbox) / "ifalias").read_text().strip()
    except FileNotFoundError:
        return None
    return alias.removeprefix(OWNER_PREFIX)


def create_bridge(shape: Shape, state: Path) -> None:
    """The bridge with the host's address. It comes first and goes last, and its alias says whose everything is."""
    bridge, prefix = bridge_name(shape.name), IPv4Network(shape.subnet).prefixlen
    _batch(
        [
            f"link add {bridge} type bridge forward_delay 0",
            f'link set {bridge} alias "{OWNER_PREFIX}{state}"',
            f"address add {shape.controller}/{prefix} dev {bridge}",
            f"link set {bridge} up",
        ]
    )


def create_nodes(shape: Shape) -> None:
    """A namespace a node with `lo` and `eth0` up, cabled to the bridge."""
    bridge, prefix = bridge_name(shape.name), IPv4Network(shape.subnet).prefixlen
    lines = []
    for node in shape.nodes:
        namespace, veth = namespace_name(shape.name, node.index), veth_name(shape.name, node.index)
        lines += [
            f"netns add {namespace}",
            f"link add {veth} type veth peer name eth0 netns {namespace}",
            f"link set {veth} master {bridge} up",
        ]
    _batch(lines)

    def inside(index: int) -> None:
        _batch(
            ["link set lo up", f"address add {shape.nodes[index].address}/{prefix} dev eth0", "link set eth0 up"],
            namespace_name(shape.name, index),
        )

    with ThreadPoolExecutor(PARALLEL) as pool:
        list(pool.map(inside, range(len(shape.nodes))))


def namespaces(sandbox: str) -> list[str]:
    """Names of the sandbox's network namespaces that exist."""
    pattern = namespace_pattern(sandbox)
    if not NETNS_DIR.is_dir():
        return []
    return sorted(path.name for path in NETNS_DIR.iterdir() if pattern.fullmatch(path.name))


def namespace_ids(sandbox: str) -> frozenset[tuple[int, int]]:
    """(device, inode) of the sandbox's network namespaces, as /proc/PID/ns/net shows them."""
    found = (((NETNS_DIR / name).stat()) for name in namespaces(sandbox))
    return frozenset((status.st_dev, status.st_ino) for status in found)


def delete(sandbox: str) -> None:
    """Removes namespaces, cables and bridge, as many as there are. Raises SandboxError when something stays."""
    bridge = bridge_name(sandbox)
    links = [path.name for path in Path("/sys/class/net").iterdir() if path.name.startswith(f"{bridge}-")]
    _batch([f"link delete {name}" for name in links])
    _batch([f"netns delete {name}" for name in namespaces(sandbox)])
    if owner(sandbox) is not None:
        _batch([f"link delete {bridge}"])


def netns_dir_is_ours() -> bool:
    """True when /run/netns exists for sandboxes only: it was never set up, or other sandboxes did."""
    if str(NETNS_DIR) not in mount_points():
        return True
    names = [path.name for path in NETNS_DIR.iterdir()]
    return bool(names) and all(name.startswith("srtctl-") for name in names)


def remove_netns_dir() -> None:
    """Undoes what `ip netns add` does once a boot: the mount on /run/netns and the folder, if nobody has one there."""
    if NETNS_DIR.is_dir() and not any(NETNS_DIR.iterdir()):
        if str(NETNS_DIR) in mount_points():
            run("umount", [str(NETNS_DIR)])
        with contextlib.suppress(OSError):
            NETNS_DIR.rmdir()


def _batch(lines: Sequence[str], namespace: str = "") -> None:
    if lines:
        run("ip", [*(["-n", namespace] if namespace else []), "-batch", "-"], "\n".join(lines) + "\n")
