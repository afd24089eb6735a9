"""What a sandbox writes down about itself before it makes anything, so that all of it can be undone after any crash."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from srtctl.sandbox.spec import Shape


@dataclass(frozen=True, slots=True)
class Record:
    """The shape, and which shared folders exist for sandboxes only: those go with the last one."""

    shape: Shape
    made_data_dir: bool
    made_netns_dir: bool


def write(path: Path, record: Record) -> None:
    """Writes the record; whoever sees the file sees all of it."""
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps({"version": 1, **asdict(record)}, indent=1) + "\n")
    draft.rename(path)


def read(path: Path) -> Record | None:
    """The record, or None when there is none that this version understands."""
    try:
        data = json.loads(path.read_text())
        return Record(Shape.from_dict(data["shape"]), bool(data["made_data_dir"]), bool(data["made_netns_dir"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
