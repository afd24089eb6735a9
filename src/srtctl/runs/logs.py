"""Which log files a run has, and reading them as they grow."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from srtctl.runs.layout import part_log, step_log


def log_names(plan: Mapping[str, Any], existing: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """What can be asked for, and its files: `agg-0` (its step, all its processes), `agg-0.1`, `agg-0.1.engine`, `etcd`.

    `existing` are the file names in the logs folder: whatever is there can be asked for, planned or not.
    """
    files = sorted(name for name in existing if name.endswith(".log"))
    names: dict[str, tuple[str, ...]] = {name.removesuffix(".log"): (name,) for name in files}
    for kind in ("services", "frontends", "client"):
        for step in _listed(plan.get(kind)):
            own = step_log(step["name"])
            names[step["name"]] = (
                own,
                *(name for name in files if name.startswith(f"{step['name']}.") and name != own),
            )
    for worker in plan.get("workers", ()):
        logs: list[str] = [step_log(worker["name"])]
        for process in worker["processes"]:
            wanted = {"setup": worker.get("setup"), "engine": True, "sidecar": process.get("sidecar")}
            parts = [part for part, there in wanted.items() if there]
            own_logs = tuple(part_log(process["name"], part) for part in parts)
            names[process["name"]] = own_logs
            names |= {log.removesuffix(".log"): (log,) for log in own_logs}
            logs += own_logs
        names[worker["name"]] = tuple(logs)
    return names


def _listed(steps: Any) -> Iterable[Mapping[str, Any]]:
    """The steps of one kind, of which a plan has a list, one, or none."""
    return [steps] if isinstance(steps, Mapping) else steps or ()


def last_lines(path: Path, count: int | None) -> tuple[str, int]:
    """The last `count` lines of a file (None: all) and the offset of their end; nothing while it does not exist."""
    try:
        with path.open("rb") as file:
            lines = deque(file, maxlen=count)
            end = file.tell()
    except FileNotFoundError:
        return "", 0
    return b"".join(lines).decode("utf-8", errors="replace"), end


def read_from(path: Path, offset: int) -> tuple[str, int]:
    """The whole lines of a file after `offset`, and the offset to go on from; from the start when it became shorter."""
    try:
        with path.open("rb") as file:
            if file.seek(0, 2) < offset:
                offset = 0
            file.seek(offset)
            data = file.read()
    except FileNotFoundError:
        return "", 0
    whole = data[: data.rfind(b"\n") + 1]
    return whole.decode("utf-8", errors="replace"), offset + len(whole)
