"""Check `rank_routing`: a request pinned to a (worker, rank) is answered by it, with at least one token."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

from srtctl.checks.context import Context
from srtctl.checks.discovery import Card
from srtctl.checks.model import FAIL, PASS, Outcome, Target, TargetResult
from srtctl.checks.net import NetError
from srtctl.checks.pinning import Pin, as_evidence, misrouted, pin


def run(context: Context, targets: Sequence[Target]) -> Outcome:
    """One pinned request to each target."""
    try:
        instances = context.instances()
    except NetError as error:
        return Outcome(tuple(TargetResult(target, FAIL, f"{target}: {error}") for target in targets))
    return Outcome(tuple(context.each(lambda target: _ask(context, instances, target), targets).values()))


def _ask(context: Context, instances: Mapping[Target, Card], target: Target) -> TargetResult:
    pinned = pin(context.deployment, instances, target)
    if not isinstance(pinned, Pin):
        return TargetResult(target, FAIL, f"{target}: {pinned}")
    evidence: dict[str, object] = {"pinned": as_evidence(pinned.served_by)}
    try:
        answer = context.chat(f"{secrets.token_hex(16)} {target}", pinned.request)
    except NetError as error:
        log = f"logs/{context.deployment.worker(target.worker).leader}.engine.log"
        return TargetResult(target, FAIL, f"{target}: {error}; see {log}", evidence)
    evidence["answered_by"] = as_evidence(answer.served_by)
    evidence["completion_tokens"] = answer.completion_tokens
    other = misrouted(pinned, answer.served_by, instances)
    if other:
        return TargetResult(target, FAIL, f"{target}: a request pinned to it was answered by {other}", evidence)
    if not answer.completion_tokens:
        return TargetResult(target, FAIL, f"{target}: answered without generating a token", evidence)
    return TargetResult(target, PASS, "a pinned request was answered by it", evidence)
