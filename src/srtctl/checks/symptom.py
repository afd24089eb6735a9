"""The shape of the diagnosis table: what is known about a failure, and a row that recognises it.

A row applies when its check fails (`before` the checks: when a process ended or the gate gave up), its pattern is found
in the text that it looks at, and its condition holds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

BEFORE = "before"  # the name of the check of what happens before the checks


@dataclass(frozen=True)
class Symptom:
    """What is known about one failure. `message` is the check's, or the last words of the process that ended.

    `engine` is what the engine says of itself in one line, `dynamo` the Dynamo beside it (`Dynamo 1.6.1`); empty where
    nobody could ask. Logs are lines, oldest first.
    """

    check: str
    message: str
    worker: str = ""
    dp_rank: int | None = None
    role: str = ""
    ordinary_dp: bool = False
    process: str = ""
    node: str = ""
    evidence: Mapping[str, object] = field(default_factory=dict)
    sidecar: Sequence[str] = ()
    frontend: Sequence[str] = ()
    engine_log: Sequence[str] = ()
    engine: str = ""
    dynamo: str = ""

    def facts(self) -> dict[str, object]:
        """What a row's templates may name."""
        return {
            "process": self.process or "a process",
            "node": self.node or "its node",
            "worker": self.worker or "of the deployment",
            "dp_rank": self.dp_rank,
            "engine": self.engine or "unknown: it could not be asked",
            "dynamo": self.dynamo or "Dynamo",
            "evidence": self.evidence,
        }


def always(_symptom: Symptom) -> bool:
    """The condition of a row that has none."""
    return True


@dataclass(frozen=True)
class Row:
    """`looks_at` names the fields of the symptom that `pattern` is searched in, in turn.

    `cause` and `remedy` are templates: `{process}`, `{node}`, `{worker}`, `{dp_rank}`, `{engine}`, `{dynamo}`,
    `{evidence[...]}`, and the named groups of the pattern.
    """

    name: str
    checks: tuple[str, ...]
    pattern: str
    cause: str
    remedy: str
    looks_at: tuple[str, ...] = ("message",)
    when: Callable[[Symptom], bool] = always


def search(pattern: str, text: str | Sequence[str]) -> re.Match[str] | None:
    """The match in a text, or the last one among lines."""
    lines = [text] if isinstance(text, str) else reversed(text)
    return next((found for line in lines if (found := re.search(pattern, line))), None)
