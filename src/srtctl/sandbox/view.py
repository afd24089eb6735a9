"""What the commands print: text for people, JSON-ready data. Pure."""

from __future__ import annotations

from typing import Any

from srtctl.sandbox.lifecycle import Sandbox
from srtctl.sandbox.status import SandboxStatus


def status_data(found: SandboxStatus) -> dict[str, Any]:
    """What `srtctl sandbox status -o json` prints."""
    shape = found.shape
    return {
        "name": found.name,
        "up": found.up,
        "healthy": found.healthy,
        "network": shape.network if shape else None,
        "subnet": shape.subnet if shape else None,
        "gpus_per_node": shape.gpus_per_node if shape else None,
        "state": str(found.state),
        "profile": str(found.profile) if found.profile else None,
        "nodes": [{"name": node.name, "address": node.address, "state": node.state} for node in found.nodes],
        "daemons": [{"name": d.name, "pid": d.pid, "running": d.running} for d in found.daemons],
    }


def up_lines(sandbox: Sandbox) -> list[str]:
    """What `srtctl sandbox up` says at its end; the last line is the next command to type."""
    shape = sandbox.shape
    nodes, gpus = _count(len(shape.nodes), "node"), _count(shape.gpus_per_node, "simulated GPU")
    word = "is up" if sandbox.booted else "was up already"
    prefix = "" if shape.name == "default" else f"SRTCTL_SANDBOX={shape.name} "
    return [
        f"sandbox `{shape.name}` {word}: {nodes} with {gpus} each, {shape.network} {shape.subnet}",
        f"next: {prefix}srtctl apply RECIPE",
    ]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def status_text(found: SandboxStatus) -> str:
    """The same for people. Raises nothing; needs a sandbox with a shape."""
    shape = found.shape
    assert shape is not None
    word = "up" if found.healthy else "broken" if found.up else "half booted"
    profile = found.profile or "none: the boot did not end"
    lines = [
        f"sandbox   {found.name}: {word}",
        f"network   {shape.network} {shape.subnet}",
        f"profile   {profile}",
        "",
        *_table(("NODE", "ADDRESS", "STATE"), [(node.name, node.address, node.state) for node in found.nodes]),
        "",
        *_table(("DAEMON", "PID", ""), [(d.name, str(d.pid), "" if d.running else "dead") for d in found.daemons]),
    ]
    return "\n".join(line.rstrip() for line in lines)


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in [head, *rows]]
