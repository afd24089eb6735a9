"""Run the planned checks in their order; the first layer that fails is the one that is named."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from srtctl.checks import kv_events, rank_routing, registration
from srtctl.checks.context import Context
from srtctl.checks.deployment import Deployment, PlannedCheck
from srtctl.checks.model import (
    FAIL,
    SKIP,
    CheckResult,
    InputError,
    Outcome,
    Target,
    TargetResult,
    combined,
)


@dataclass(frozen=True)
class Check:
    """`blocks_all`: its failure at one target leaves nothing for later checks to prove at any."""

    name: str
    run: Callable[[Context, Sequence[Target]], Outcome]
    blocks_all: bool


CHECKS = (
    Check("registration", registration.run, blocks_all=True),
    Check("rank_routing", rank_routing.run, blocks_all=False),
    Check("kv_events", kv_events.run, blocks_all=False),
)


def select(deployment: Deployment, only: Collection[str]) -> tuple[tuple[Check, PlannedCheck], ...]:
    """The plan's checks, or those of `only`, in the order they run. Raises InputError for a name that is not there."""
    planned = {check.name: check for check in deployment.checks}
    known = [check.name for check in CHECKS]
    for name in planned:
        if name not in known:
            raise InputError(f"the plan has a check {name!r}, which these checks do not know: {', '.join(known)}")
    for name in only:
        if name not in planned:
            raise InputError(f"--only {name}: the plan has no such check, it has {', '.join(planned) or 'none'}")
    return tuple((check, planned[check.name]) for check in CHECKS if check.name in (only or planned))


def run(
    context: Context, selected: Sequence[tuple[Check, PlannedCheck]], report: Callable[[CheckResult], None]
) -> tuple[CheckResult, ...]:
    """The result of every selected check; `report` gets each one as it ends."""
    results: list[CheckResult] = []
    failed: dict[Target, str] = {}
    blocked = ""
    for check, planned in selected:
        why_not = {target: blocked or failed.get(target, "") for target in planned.targets}
        limits = context.limits.for_check(planned.timeout)
        result = _run_one(check, planned, replace(context, limits=limits), why_not)
        results.append(result)
        report(result)
        failed.update(
            {
                item.target: f"because {check.name} failed: {item.message}"
                for item in result.targets
                if item.verdict == FAIL
            }
        )
        if result.verdict == FAIL and check.blocks_all:
            blocked = f"because {check.name} failed: {result.reason}"
    return tuple(results)


def _run_one(check: Check, planned: PlannedCheck, context: Context, why_not: Mapping[Target, str]) -> CheckResult:
    started = time.monotonic()
    ready = [target for target, reason in why_not.items() if not reason]
    outcome = _outcome(check, context, ready)
    found = {result.target: result for result in outcome.results}
    targets = tuple(found.get(target) or TargetResult(target, SKIP, reason) for target, reason in why_not.items())
    complete = Outcome(targets, outcome.problem)
    seconds = round(time.monotonic() - started, 3)
    return CheckResult(planned.name, planned.on_failure, combined(complete), seconds, reason_of(complete), targets)


def _outcome(check: Check, context: Context, targets: Sequence[Target]) -> Outcome:
    if not targets:
        return Outcome(())
    try:
        return check.run(context, targets)
    except Exception as error:
        problem = f"the check itself broke, which is a bug of srtctl: {type(error).__name__}: {error}"
        return Outcome(tuple(TargetResult(target, SKIP, f"because {problem}") for target in targets), problem)


def reason_of(outcome: Outcome) -> str:
    """Why a check did not pass: what is wrong apart from any target, else its first failed, else first skipped one."""
    by_verdict = [[result for result in outcome.results if result.verdict == verdict] for verdict in (FAIL, SKIP)]
    messages = [outcome.problem] if outcome.problem else []
    messages += [result.message for result in (by_verdict[0] or by_verdict[1])]
    if not messages:
        return ""
    more = len(messages) - 1
    return messages[0] + (f" (and {more} more)" if more and by_verdict[0] else "")
