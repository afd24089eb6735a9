"""What happens to a run, one line a fact, while a verb waits."""

from __future__ import annotations

import time
from collections.abc import Callable

from srtctl.cli.show import OUTCOMES, duration
from srtctl.runs.model import RunStatus
from srtctl.runs.watch import Watch

LOOK_EVERY = 0.5  # seconds between two looks at the event files; Watch asks Slurm far less often


def news(before: RunStatus | None, after: RunStatus) -> list[str]:
    """What can be said of `after` that was not true of `before`, with the clock of the queue, the start-up or the benchmark."""
    lines: list[str] = []
    if after.nodes and not (before and before.nodes):
        shown = ", ".join(after.nodes[:4]) + (f" and {len(after.nodes) - 4} more" if len(after.nodes) > 4 else "")
        lines.append(f"running on {shown}")
    phase = OUTCOMES[after.outcome] if after.outcome else after.phase
    if before is None or (before.phase, before.detail) != (after.phase, after.detail):
        lines.append(f"{phase}: {after.detail}" if after.detail else phase)
    if after.cause and (before is None or before.cause != after.cause) and not after.ended:
        lines.append(f"cause: {after.cause}")
    if after.slurm_error and not (before and before.slurm_error):
        lines.append(f"Slurm does not answer ({after.slurm_error}); still watching what the run reports")
    running = after.startup_seconds if after.benchmark_seconds is None else after.benchmark_seconds
    clock = after.queued_seconds if after.phase == "queued" else running
    mark = f"[{duration(clock)}]" if clock is not None else ""
    return [f"{mark:>14} {line}" for line in lines]


def follow(
    watch: Watch,
    done: Callable[[RunStatus], bool],
    say: Callable[[str], None],
    timeout: float | None = None,
) -> RunStatus | None:
    """Say what happens until the run is `done`; its status then, or None when `timeout` seconds passed first."""
    deadline = None if timeout is None else time.monotonic() + timeout
    before: RunStatus | None = None
    while True:
        status = watch.look()
        for line in news(before, status):
            say(line)
        if done(status):
            return status
        if deadline is not None and time.monotonic() >= deadline:
            return None
        before = status
        time.sleep(LOOK_EVERY)
