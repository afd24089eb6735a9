"""The event log of a run: one fact a line, one file a writer, merged by time."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """One fact. `ts` is in seconds since the epoch by the writer's clock; `node` is None for the job itself."""

    ts: float
    name: str
    node: int | None = None
    data: Mapping[str, Any] = field(default_factory=dict)

    def text(self, key: str) -> str:
        """The value of `key` as text; empty when it is missing or null."""
        value = self.data.get(key)
        return "" if value is None else str(value)


def parse_event(line: str) -> Event | None:
    """The event in `line`, or None when the line is not one (torn, or padded by a file system after a crash)."""
    try:
        data = json.loads(line)
        ts, name, node = float(data.pop("ts")), data.pop("event"), data.pop("node", None)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    if not isinstance(name, str) or not (node is None or isinstance(node, int)):
        return None
    return Event(ts, name, node, data)


class EventFollower:
    """Reads what was appended to `directory/*.jsonl` since the last call."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._offsets: dict[Path, int] = {}

    def poll(self) -> list[Event]:
        """New events in order of time. A line without its end is left for the next call, an unreadable one skipped."""
        events: list[Event] = []
        for path in sorted(self._directory.glob("*.jsonl")):
            offset = self._offsets.get(path, 0)
            try:
                with path.open("rb") as file:
                    if file.seek(0, os.SEEK_END) < offset:  # a new job of the same bundle began a new file
                        offset = 0
                    file.seek(offset)
                    data = file.read()
            except OSError:
                continue
            whole = data[: data.rfind(b"\n") + 1]
            self._offsets[path] = offset + len(whole)
            lines = whole.decode("utf-8", errors="replace").splitlines()
            events += [event for line in lines if (event := parse_event(line))]
        return sorted(events, key=lambda event: event.ts)


def read_events(directory: Path) -> list[Event]:
    """All events of a run in order of time."""
    return EventFollower(directory).poll()
