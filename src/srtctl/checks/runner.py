"""Run the planned checks in their order; the first layer that fails is the one that is named."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from srtctl.checks import (
    cache_reuse,
    capabilities,
    direct_dispatch,
    gather,
    kv_events,
    load,
    placement,
    publishers,
    rank_routing,
    registration,
    transfer,
)
from srtctl.checks.context import Context
from srtctl.checks.deployment import Deployment, PlannedCheck
from srtctl.checks.model import FAIL, SKIP, CheckResult, InputError, Outcome, Target, TargetResult, combined


@dataclass(frozen=True)
class Check:
    """`needs` are the checks that must not have failed at a target for this one to prove anything there.

    `blocks_all`: its failure at one target leaves nothing for the checks that need it to prove at any.
    """

    name: str
    run: Callable[[Context, Sequence[Target]], Outcome]
    needs: tuple[str, ...] = ()
    blocks_all: bool = False


CHECKS = (
    Check("placement", placement.run),
    Check("capabilities", capabilities.run, ("placement",)),
    Check("registration", registration.run, ("placement", "capabilities"), blocks_all=True),
    Check("rank_routing", rank_routing.run, ("placement", "capabilities", "registration")),
    Check("direct_dispatch", direct_dispatch.run, ("placement", "capabilities", "registration", "rank_routing")),
    Check("publishers", publishers.run, ("placement", "capabilities", "registration", "rank_routing")),
    Check("kv_events", kv_events.run, ("placement", "capabilities", "registration", "rank_routing", "publishers")),
    Check(
        "cache_reuse",
        cache_reuse.run,
        ("placement", "capabilities", "registration", "rank_routing", "publishers", "kv_events"),
    ),
    Check("transfer", transfer.run, ("placement", "capabilities", "registration", "rank_routing")),
    Check("load", load.run, ("placement", "capabilities", "registration", "rank_routing", "transfer")),
)


def select(
    deployment: Deployment, only: Collection[str], through: str | None = None
) -> tuple[tuple[Check, PlannedCheck], ...]:
    """The plan's checks, or those of `only`, in the order they run, up to `through`.

    Raises InputError for a name that is not there.
    """
    planned = {check.name: check for check in deployment.checks}
    known = [check.name for check in CHECKS]
    for name in planned:
        if name not in known:
            raise InputError(f"the plan has a check {name!r}, which these checks do not know: {', '.join(known)}")
    for name in only:
        if name not in planned:
            raise InputError(f"--only {name}: the plan has no such check, it has {', '.join(planned) or 'none'}")
    if through is not None and through not in known:
        raise InputError(f"--through {through}: there is no such check, there are {', '.join(known)}")
    upto = known if through is None else [*takewhile(lambda name: name != through, known), through]
    wanted = [check for check in CHECKS if check.name in (only or planned) and check.name in upto]
    return tuple((check, planned[check.name]) for check in wanted)


def run(
    context: Context, selected: Sequence[tuple[Check, PlannedCheck]], report: Callable[[CheckResult], None]
) -> tuple[CheckResult, ...]:
    """The result of every selected check; `report` gets each one as it ends."""
    results: list[CheckResult] = []
    for check, planned in selected:
        why_not = {target: _blocked(check, target, results) for target in planned.targets}
        limits = context.limits.for_check(planned.timeout)
        broken = frozenset(item.target for result in results for item in result.targets if item.verdict == FAIL)
        now = replace(context, limits=limits, settings=planned.settings, broken=broken)
        result = _run_one(check, planned, now, why_not)
        results.append(result)
        report(result)
    return tuple(results)


def _blocked(check: Check, target: Target, results: Sequence[CheckResult]) -> str:
    """Because of what earlier failure `check` cannot prove anything at `target`; empty if it can."""
    blocking_all = {known.name for known in CHECKS if known.blocks_all}
    for earlier in results:
        if earlier.name not in check.needs or earlier.verdict != FAIL:
            continue
        for item in earlier.targets:
            if item.verdict == FAIL and item.target.touches(target):
                return f"because {earlier.name} failed: {item.message}"
        if earlier.name in blocking_all:
            return f"because {earlier.name} failed: {earlier.reason}"
    return ""


def _run_one(check: Check, planned: PlannedCheck, context: Context, why_not: Mapping[Target, str]) -> CheckResult:
    started = time.monotonic()
    ready = [target for target, reason in why_not.items() if not reason]
    outcome = _outcome(check, context, ready)
    found = {result.target: result for result in gather.explained(context, check.name, outcome.results)}
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
