"""What became of every process of a plan, from the events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from srtctl.runs.events import Event
from srtctl.runs.model import PartStatus, ProcessState, RunFiles

_OVER = ("exited", "stopped")


@dataclass(slots=True)
class _Fate:
    state: ProcessState = "not started"
    code: int | None = None
    last: str = ""
    stop_seconds: float | None = None

    def end(self, state: ProcessState, event: Event) -> None:
        code, seconds = event.data.get("code"), event.data.get("seconds")
        self.state, self.code, self.last = state, code if isinstance(code, int) else None, event.text("last")
        self.stop_seconds = seconds if isinstance(seconds, float) else None


def planned_parts(files: RunFiles) -> Iterator[tuple[str, str, int]]:
    """(process, part, node index) of everything in the plan: services, frontends, client, then the workers' processes."""
    for kind in ("services", "frontends"):
        for step in files.plan.get(kind, ()):
            yield step["name"], "", step["node"]
    if client := files.plan.get("client"):
        yield client["name"], "", client["node"]
    for worker in files.plan.get("workers", ()):
        for process in worker["processes"]:
            yield process["name"], "engine", process["node"]
            if process.get("sidecar"):
                yield process["name"], "sidecar", process["node"]


def part_statuses(files: RunFiles, *, ended: bool) -> tuple[PartStatus, ...]:
    """The state of every planned part. What ran when the run `ended` and told no end has `no end recorded`."""
    planned = list(planned_parts(files))
    fates = {(process, part): _Fate() for process, part, _ in planned}
    stopping = False
    for event in files.events:
        stopping = stopping or event.name == "stopping"
        if fate := _subject(event, fates):
            _apply(event, fate, stopping=stopping)
    found = []
    for process, part, node in planned:
        fate = fates[process, part]
        state: ProcessState = "no end recorded" if ended and fate.state in ("running", "listening") else fate.state
        name = files.node_name(node)
        found.append(PartStatus(process, part, node, name, state, fate.code, fate.last, fate.stop_seconds))
    return tuple(found)


def _subject(event: Event, fates: dict[tuple[str, str], _Fate]) -> _Fate | None:
    """Whom an event is about. A service or frontend is a step of one process; a port is the engine's."""
    name = event.text("step") or event.text("process")
    return fates.get((name, "")) or fates.get((name, event.text("part") or "engine"))


def _apply(event: Event, fate: _Fate, *, stopping: bool) -> None:
    match event.name:
        case "started" | "step_started" if fate.state not in ("listening", *_OVER):
            fate.state = "running"
        case "listening" if fate.state not in _OVER:
            fate.state = "listening"
        case "exited" | "client_ended":
            fate.end("exited", event)
        case "stopped":
            fate.end("stopped", event)
        case "step_ended" if fate.state not in _OVER:
            fate.end("stopped" if stopping else "exited", event)
