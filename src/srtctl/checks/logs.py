"""The logs of a run, read for evidence: bounded, without colours, empty where there is none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

TAIL_BYTES = 4 * 1024 * 1024
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_FIELD = re.compile(r'([\w.]+)=("(?:[^"\\]|\\.)*"|\S+)')
_ROUTED = re.compile(r"route request (completed|cancelled)")


@dataclass(frozen=True)
class Leg:
    """What the frontend logged of one leg of a request (Dynamo 1.6.1: `route request completed`).

    A leg whose stream is dropped after its last token is logged as `cancelled`, though the client has its whole answer.
    """

    phase: str
    worker_id: int
    dp_rank: int
    outcome: str


def lines(run_dir: Path, name: str) -> list[str]:
    """The last lines of `logs/<name>.log`."""
    try:
        with (run_dir / "logs" / f"{name}.log").open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return _COLOUR.sub("", text).splitlines()


def legs(log: list[str], request_id: str) -> dict[str, Leg]:
    """The legs of a request by phase: Aggregated, Prefill, Decode."""
    found = {}
    for line in log:
        if request_id in line and routed(line):
            leg = _leg(dict(_FIELD.findall(line)))
            if leg:
                found[leg.phase] = leg
    return found


def routed(line: str) -> bool:
    """Whether a line of the frontend's log tells of a leg that ended."""
    return bool(_ROUTED.search(line))


def _leg(fields: Mapping[str, str]) -> Leg | None:
    try:
        outcome = fields.get("request.outcome", "").strip('"')
        return Leg(fields["phase"], int(fields["worker_id"]), int(fields["dp_rank"]), outcome)
    except (KeyError, ValueError):
        return None


def room(log: list[str], request_id: str) -> int | None:
    """The bootstrap room that an engine logged for a request; None where it logs no rooms (SGLang does not by default)."""
    for line in reversed(log):
        if request_id in line and (match := re.search(r"\b(?:bootstrap_)?room=(\d+)", line)):
            return int(match[1])
    return None
