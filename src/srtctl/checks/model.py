"""What a check looks at and what it says: plain frozen data, in the words of checks.json."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

Verdict = Literal["pass", "warn", "fail", "skip"]
PASS: Final = "pass"
WARN: Final = "warn"
FAIL: Final = "fail"
SKIP: Final = "skip"


class InputError(Exception):
    """The command line, the plan or the node table cannot be used; the text is one sentence for a person."""


@dataclass(frozen=True, order=True)
class Target:
    """What a check looks at: one global DP rank of a planned worker, a worker (no rank), or the deployment (neither)."""

    worker: str
    dp_rank: int | None = None

    def __str__(self) -> str:
        if not self.worker:
            return "the deployment"
        return self.worker if self.dp_rank is None else f"{self.worker} rank {self.dp_rank}"

    @property
    def rank(self) -> int:
        """Its DP rank; only of a target that is one (ValueError)."""
        if self.dp_rank is None:
            raise ValueError(f"{self} is no single rank")
        return self.dp_rank

    def touches(self, other: Target) -> bool:
        """Whether one is, or is a part of, the other."""
        if not (self.worker and other.worker):
            return True
        return self.worker == other.worker and (None in (self.dp_rank, other.dp_rank) or self.dp_rank == other.dp_rank)


@dataclass(frozen=True)
class Diagnosis:
    """A symptom that is understood: what caused it, and what to do. Two sentences for a person."""

    cause: str
    remedy: str


@dataclass(frozen=True)
class TargetResult:
    """What one check found at one target: one sentence, and the values it rests on (JSON types only)."""

    target: Target
    verdict: Verdict
    message: str
    evidence: Mapping[str, object] = field(default_factory=dict)
    diagnosis: Diagnosis | None = None


@dataclass(frozen=True)
class Outcome:
    """What a check returns: a result for each target it was given, and what is wrong apart from any target."""

    results: tuple[TargetResult, ...]
    problem: str = ""


@dataclass(frozen=True)
class CheckResult:
    """One check as it stands in checks.json; `seconds` is the time it took."""

    name: str
    on_failure: str
    verdict: Verdict
    seconds: float
    reason: str
    targets: tuple[TargetResult, ...]


def combined(outcome: Outcome) -> Verdict:
    """The verdict of a check: anything wrong fails it, and it passes only when no target was left out."""
    verdicts = {result.verdict for result in outcome.results}
    if outcome.problem or FAIL in verdicts:
        return FAIL
    return SKIP if SKIP in verdicts else PASS


def overall(checks: Iterable[CheckResult]) -> Verdict:
    """The verdict of a run: `fail` if a check failed whose `on_failure` is `fail`, `warn` if only others did."""
    failed = {check.on_failure for check in checks if check.verdict == FAIL}
    if not failed:
        return PASS
    return WARN if failed == {"warn"} else FAIL
