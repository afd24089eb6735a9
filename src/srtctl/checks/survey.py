"""What each node saw of itself just before the checks: `state/survey.<node>.tsv`, written by `survey` in job.sh.

Lines of tab-separated fields: `node NAME`, `process PROCESS PART PID CUDA_VISIBLE_DEVICES` (empty where the variable is
not set; only processes that are alive), `listen PORT PROCESS` (empty where it is no process of the run).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class NodeView:
    """`processes` maps (process, part) to its CUDA_VISIBLE_DEVICES, `listening` each port to the process that has it."""

    name: str = ""
    listening: Mapping[int, str] = field(default_factory=dict)
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
    name, listening, processes = "", {}, {}
    for line in text.splitlines():
        kind, *fields = line.split("\t")
        if kind == "node":
            name = fields[0]
        elif kind == "listen":
            listening[int(fields[0])] = fields[1]
        elif kind == "process":
            processes[fields[0], fields[1]] = fields[3]
    return NodeView(name, listening, processes)
