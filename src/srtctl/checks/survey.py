"""What each node saw of itself just before the checks: `state/survey.<node>.tsv`, written by `survey` in runtime.sh.

Lines of tab-separated fields: `node NAME`, `listen PORT`, `process PROCESS PART PID CUDA_VISIBLE_DEVICES` (last field
empty where the variable is not set); only processes that are alive have a line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class NodeView:
    """`processes` maps (process, part) to its CUDA_VISIBLE_DEVICES."""

    name: str = ""
    listening: frozenset[int] = frozenset()
    processes: Mapping[tuple[str, str], str] = field(default_factory=dict)


def read(run_dir: Path, node: int) -> NodeView | None:
    """The view of a plan node; None where there is none."""
    try:
        text = (run_dir / "state" / f"survey.{node}.tsv").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return parse(text)


def parse(text: str) -> NodeView:
    """The content of a survey file; lines of other kinds are ignored."""
    name, listening, processes = "", set(), {}
    for line in text.splitlines():
        kind, *fields = line.split("\t")
        if kind == "node":
            name = fields[0]
        elif kind == "listen":
            listening.add(int(fields[0]))
        elif kind == "process":
            processes[fields[0], fields[1]] = fields[3]
    return NodeView(name, frozenset(listening), processes)
