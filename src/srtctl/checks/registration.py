"""Check `registration`: discovery and the router hold exactly what the plan has.

It looks at what is registered, never at whether events flowed, so that a silent publisher is not its failure.
Sources: discovery (`v1/mdc`, `v1/event_sources`), each frontend's list of models, and two metrics of its KV router.
Routers of other modes do not tell whom they know (Dynamo 1.6.1: no such metrics), so discovery has the word there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from srtctl.checks.context import Context
from srtctl.checks.deployment import Deployment, Worker
from srtctl.checks.discovery import Card, Snapshot, Source
from srtctl.checks.frontend import MISMATCH, RouterView, View
from srtctl.checks.identity import Assignment, assign, describe
from srtctl.checks.model import FAIL, PASS, Outcome, Target, TargetResult, combined
from srtctl.checks.net import NetError

_WORKER_TYPE = {"agg": "aggregated", "prefill": "prefill", "decode": "decode"}
# The router names the pool of aggregated workers `decode`. The decode pool of a P/D deployment has no KV index.
_INDEXED_POOL = {"agg": "decode", "prefill": "prefill"}


def run(context: Context, targets: Sequence[Target]) -> Outcome:
    """Looks until everything is there or the time for registration is over, and reports the last look that saw it."""
    deadline = context.deadline.within(context.limits.registration)
    outcome = None
    while True:
        try:
            outcome = evaluate(context.deployment, targets, context.snapshot(), context.views())
        except NetError as error:
            if outcome is None or deadline.remaining():
                outcome = Outcome(tuple(TargetResult(target, FAIL, f"{target}: {error}") for target in targets))
        if combined(outcome) == PASS or not deadline.remaining():
            return outcome
        context.pause()


def evaluate(
    deployment: Deployment,
    targets: Sequence[Target],
    snapshot: Snapshot,
    views: Mapping[str, View],
) -> Outcome:
    """One look, compared with the plan; `views` are those of the frontends, by what messages call each."""
    assignment = assign(deployment.workers, snapshot.cards)
    routers = {whose: view.router for whose, view in views.items() if view.router}
    results = tuple(_target(deployment, target, assignment, snapshot, routers) for target in targets)
    problems = [f"extra registration: {describe(card)}" for card in assignment.extra]
    problems += [f"unreadable registration: {key}" for key in snapshot.unreadable]
    problems += _strays(deployment, assignment, snapshot, routers)
    if not problems and all(result.verdict == PASS for result in results):
        for whose, router in routers.items():
            problems += _mismatches(deployment, whose, router)
        for whose, view in views.items():
            if deployment.model not in view.models:
                listed = ", ".join(view.models) or "none"
                problems.append(f"{whose} does not list model {deployment.model!r}, it lists {listed}")
    return Outcome(results, "; ".join(problems))


def _target(
    deployment: Deployment,
    target: Target,
    assignment: Assignment,
    snapshot: Snapshot,
    routers: Mapping[str, RouterView],
) -> TargetResult:
    card = assignment.instances().get(target)
    sources = [source for source in snapshot.sources if card and _key(source) == (card.worker_id, target.dp_rank)]
    complaint = _complaint(deployment, target, assignment, card, sources, routers)
    evidence: dict[str, object] = {}
    if card:
        evidence = {
            "worker_id": str(card.worker_id),  # text: it does not fit in the double of other JSON readers
            "registration": card.key,
            "first_dp_rank": card.first_rank,
            "dp_ranks": card.ranks,
            "router_registered": _told((card.worker_id, target.dp_rank), routers),
            "kv_event_sources": [source.key for source in sources],
            **({"bootstrap": card.bootstrap} if card.bootstrap else {}),
            **({"group": card.group} if card.group else {}),
        }
    if complaint:
        return TargetResult(target, FAIL, f"{target}: {complaint}", evidence)
    whose = "every frontend" if len(routers) > 1 else "the frontend"
    where = f"in discovery and with {whose}'s router" if routers else "in discovery"
    return TargetResult(target, PASS, f"registered {where}", evidence)


def _told(key: tuple[int, int | None], routers: Mapping[str, RouterView]) -> object:
    """Whether the router has it, or each of several; None where it does not tell."""
    told = {whose: key in router.registered for whose, router in routers.items()}
    return told if len(told) > 1 else next(iter(told.values()), None)


def _complaint(
    deployment: Deployment,
    target: Target,
    assignment: Assignment,
    card: Card | None,
    sources: Sequence[Source],
    routers: Mapping[str, RouterView],
) -> str:
    """The first cause of what is wrong at a target; empty if nothing is."""
    worker = deployment.worker(target.worker)
    cards = assignment.cards[worker.name]
    log = f"logs/{worker.leader}.{worker.processes[0].parts[-1]}.log"
    if worker.name in assignment.problems:
        return f"{assignment.problems[worker.name]}; see {log}"
    for owned in cards:
        if owned.model != deployment.model:
            return f"registered as model {owned.model!r}, the plan serves {deployment.model!r}"
        if owned.worker_type != _WORKER_TYPE[worker.role]:
            return f"registered as {owned.worker_type!r}, the plan has it as {_WORKER_TYPE[worker.role]!r}"
    ranks, planned = sorted(rank for owned in cards for rank in owned.dp_ranks()), list(range(worker.dp_size))
    if card is None or ranks != planned:
        return (
            f"{worker.name} registered DP ranks {ranks}, the plan has {planned}; "
            f"which dp_size does the engine report? See {log}"
        )
    for whose, router in routers.items():
        if (card.worker_id, target.dp_rank) not in router.registered:
            hint = "" if router.registered else "; the router has nobody, is its mode kv?"
            return f"registered in discovery, but not with {whose}'s router as worker id {card.worker_id}{hint}"
    if worker.bootstrap and card.bootstrap != worker.bootstrap:
        home = deployment.nodes[worker.processes[0].node].name
        found = (
            f"announces its bootstrap server at {card.bootstrap}" if card.bootstrap else "announces no bootstrap server"
        )
        return f"{found}, the plan has it at {worker.bootstrap} ({home}); see {log}"
    for name, others in assignment.cards.items():
        if card.group and name != worker.name and any(other.group == card.group for other in others):
            return f"{worker.name} and {name} registered as one distributed group, {card.group}"
    publisher = worker.publishers.get(target.rank)
    if publisher and len(sources) != 1:
        return (
            f"{len(sources) or 'no'} KV event source{'s' if sources else ''} registered, "
            f"the plan has one, published on {publisher.place}; "
            f"see logs/{publisher.process}.sidecar.log"
        )
    return ""


def _strays(
    deployment: Deployment, assignment: Assignment, snapshot: Snapshot, routers: Mapping[str, RouterView]
) -> Iterator[str]:
    """What is left of workers that are gone, or was never planned."""
    cards = [card for owned in assignment.cards.values() for card in owned] + list(assignment.extra)
    served = {(card.worker_id, rank) for card in cards for rank in card.dp_ranks()}
    for whose, router in routers.items():
        for worker_id, rank in sorted(router.registered - served):
            yield f"{whose}'s router still holds worker id {worker_id} rank {rank}, which nobody registers"
    names = {card.worker_id: name for name, owned in assignment.cards.items() for card in owned}
    extra_ids = {card.worker_id for card in assignment.extra}
    for source in snapshot.sources:
        name = names.get(source.worker_id)
        if name is None and source.worker_id not in extra_ids:
            yield f"stale KV event source of worker id {source.worker_id} rank {source.dp_rank}: {source.key}"
        elif name is not None and _unplanned(deployment.worker(name), source.dp_rank):
            yield f"{Target(name, source.dp_rank)} has a KV event source that the plan does not have: {source.key}"


def _unplanned(worker: Worker, rank: int) -> bool:
    """Dynamo's mocker registers as a source whether anybody wants its KV events or not."""
    return rank not in worker.publishers and worker.engine != "mocker"


def _mismatches(deployment: Deployment, whose: str, router: RouterView) -> Iterator[str]:
    """The router's own count of workers without their KV event sources, where the plan has all ranks publish."""
    for role, pool in _INDEXED_POOL.items():
        workers = [worker for worker in deployment.workers if worker.role == role]
        if not workers or any(len(worker.publishers) != worker.dp_size for worker in workers):
            continue
        count = router.source_mismatches.get(pool)
        if count is None:
            yield f"{whose} reports no {MISMATCH} for {role} workers; is its router mode kv?"
        elif count:
            yield f"{whose}'s router counts {count} {role} worker(s) without their KV event sources ({MISMATCH})"


def _key(source: Source) -> tuple[int, int]:
    return source.worker_id, source.dp_rank
