"""Check `rank_routing`: a request pinned to a (worker, rank) is answered by it, with at least one token, through each
frontend.

With prefill and decode a request needs a rank of each role. A rank is at fault only if it works with no partner, so
that one broken prefill rank is not reported as a broken decode rank too.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

from srtctl.checks.context import Context
from srtctl.checks.discovery import Card
from srtctl.checks.model import FAIL, PASS, Outcome, Target, TargetResult
from srtctl.checks.net import NetError, fetch
from srtctl.checks.pinning import Pin, as_evidence, misrouted, partners

_PARTNERS = 3
_HEALTH_SECONDS = 2.0


def run(context: Context, targets: Sequence[Target]) -> Outcome:
    """A pinned request to each target; with another partner while it fails and there is one."""
    try:
        instances = context.instances()
    except NetError as error:
        return Outcome(tuple(TargetResult(target, FAIL, f"{target}: {error}") for target in targets))
    return Outcome(tuple(context.each(lambda target: _ask(context, instances, target), targets).values()))


def _ask(context: Context, instances: Mapping[Target, Card], target: Target) -> TargetResult:
    turns = min(partners(context.deployment, instances, target), _PARTNERS) or 1
    first: TargetResult | None = None
    for turn in range(turns):
        result = _ask_frontends(context, instances, target, turn)
        if result.verdict == PASS:
            return result
        first = first or result
    assert first is not None
    return first


def _ask_frontends(context: Context, instances: Mapping[Target, Card], target: Target, turn: int) -> TargetResult:
    """What the last frontend answered, or the first that did not answer well."""
    pinned = context.pin(instances, target, turn)
    if not isinstance(pinned, Pin):
        return TargetResult(target, FAIL, f"{target}: {pinned}")
    for name in context.deployment.frontends:
        result = _ask_once(context, instances, target, pinned, name)
        if result.verdict != PASS:
            break
    return result


def _ask_once(
    context: Context, instances: Mapping[Target, Card], target: Target, pinned: Pin, frontend: str
) -> TargetResult:
    evidence: dict[str, object] = {"pinned": as_evidence(pinned.served_by)}
    if len(context.deployment.frontends) > 1:
        evidence["through"] = frontend
    try:
        answer = context.chat(f"{secrets.token_hex(16)} {target}", pinned.request, frontend)
    except NetError as error:
        worker, server = context.deployment.worker(target.worker), context.deployment.server_of(target)
        evidence["sidecar_health"] = [_health(context, address) for address in worker.serving]
        return TargetResult(target, FAIL, f"{target}: {error}; see logs/{server.name}.engine.log", evidence)
    evidence["answered_by"] = as_evidence(answer.served_by)
    evidence["completion_tokens"] = answer.completion_tokens
    other = misrouted(pinned, answer.served_by, instances)
    if other:
        return TargetResult(target, FAIL, f"{target}: a request pinned to it was answered by {other}", evidence)
    if not answer.completion_tokens:
        return TargetResult(target, FAIL, f"{target}: answered without generating a token", evidence)
    return TargetResult(target, PASS, "a pinned request was answered by it", evidence)


def _health(context: Context, address: str) -> str:
    """What the status server of a sidecar says of itself: `ready`, or why that is not known."""
    try:
        said = fetch(f"http://{address}/health", timeout=min(_HEALTH_SECONDS, context.timeout())).json()
    except NetError as error:
        return str(error)
    return str(said.get("status")) if isinstance(said, dict) else "unreadable"
