"""Reading a run directory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from srtctl.runs.events import Event, read_events
from srtctl.runs.layout import RunDir
from srtctl.runs.model import Node, RunFiles
from srtctl.runs.record import read_object, read_record


def read_nodes(path: Path) -> dict[int, Node]:
    """The nodes in state/nodes.tsv (index, name, address); empty while the job has not written it."""
    try:
        rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError):
        return {}
    return {int(row[0]): Node(row[1], row[2]) for row in rows if len(row) >= 3 and row[0].isdigit()}


def read_run(root: Path, events: Sequence[Event] | None = None, plan: Mapping[str, Any] | None = None) -> RunFiles:
    """Everything in the run directory `root`; `events` and `plan` where the caller has them already."""
    run = RunDir(root)
    return RunFiles(
        run=root.name,
        plan=plan or read_object(run.plan),
        record=read_record(run.record),
        nodes=read_nodes(run.nodes),
        events=tuple(read_events(run.events) if events is None else sorted(events, key=lambda event: event.ts)),
        end=read_object(run.end) or None,
        checks=read_object(run.checks) or None,
    )
