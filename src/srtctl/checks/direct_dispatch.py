"""Check `direct_dispatch`: requests reach the engines that are to be called directly from the frontend, and the others
through their sidecars.

First what discovery says (`native_grpc_endpoint`, `native_grpc_mode` of the model cards) against the plan. Then pinned
requests to every worker through each frontend, with a look before and one after: how many requests its sidecar counted, and how many bytes
came in on which connection of its engine's gRPC port, as the kernel of the engine's node counts them. A request is at
least as many bytes as it has tokens; without requests a sidecar sends its engine next to nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice, product

from srtctl.checks.carriers import FRONTEND, SIDECAR, Look, looks
from srtctl.checks.context import Context
from srtctl.checks.deployment import Worker
from srtctl.checks.discovery import Card
from srtctl.checks.frontend import Answer
from srtctl.checks.model import FAIL, PASS, SKIP, Outcome, Target, TargetResult, Verdict
from srtctl.checks.net import NetError
from srtctl.checks.pinning import Pin

REQUESTS = 4  # for each worker, or more: each of its ranks through each frontend
_WORDS = 250


@dataclass(frozen=True)
class Sent:
    """The requests to one worker: how many were answered, their tokens, and the first failure."""

    answered: int
    tokens: int
    failure: str = ""


def run(context: Context, targets: Sequence[Target]) -> Outcome:
    """Compare the cards, then send requests until every target has passed or the time is over: a frontend connects to
    an engine some time after both have registered."""
    deadline = context.deadline.within(context.limits.connect)
    found: dict[Target, TargetResult] = {}
    while True:
        left = [target for target in targets if target not in found or found[target].verdict != PASS]
        try:
            found |= _round(context, left)
        except NetError as error:
            found |= {target: TargetResult(target, FAIL, f"{target}: {error}") for target in left}
        if all(result.verdict != FAIL for result in found.values()) or not deadline.remaining():
            return Outcome(tuple(found[target] for target in targets))
        context.pause()


def _round(context: Context, targets: Sequence[Target]) -> dict[Target, TargetResult]:
    instances = context.instances()
    workers = {target: context.deployment.worker(target.worker) for target in targets}
    cards = {target: [card for rank, card in instances.items() if rank.worker == target.worker] for target in targets}
    wrong = {target: words for target in targets if (words := complaint(workers[target], cards[target]))}
    asked = [target for target in targets if target not in wrong]
    before = looks(context, [workers[target] for target in asked])
    sent = context.each(lambda target: _send(context, instances, target), asked)
    after = looks(context, [workers[target] for target in asked])
    results = {
        target: judge(target, workers[target], before[target.worker], after[target.worker], sent[target])
        for target in asked
    }
    results |= {target: TargetResult(target, FAIL, f"{target}: {words}") for target, words in wrong.items()}
    return {target: _with_card(results[target], workers[target], cards[target]) for target in targets}


def complaint(worker: Worker, cards: Sequence[Card]) -> str:
    """What its cards say against the plan; empty if nothing. Endpoints are compared with and without a scheme alike."""
    log, direct = f"see logs/{worker.leader}.sidecar.log", worker.direct
    for card in cards:
        if not direct and card.native_endpoint:
            return f"it advertises {card.native_endpoint}, but the plan keeps it on the request plane; {log}"
        if direct and not card.native_endpoint:
            return f"it advertises no gRPC endpoint, the plan has {direct}; {log}"
        if direct and card.native_endpoint.removeprefix("http://") != direct:
            return f"it advertises {card.native_endpoint}, the plan has {direct}; {log}"
        if direct and card.native_mode != worker.role:
            return f"it advertises mode {card.native_mode!r}, the plan has it as {worker.role!r}; {log}"
    return "" if cards else "not registered"


def judge(target: Target, worker: Worker, before: Look, after: Look, sent: Sent) -> TargetResult:
    """Who carried the requests that were sent between two looks at a worker."""
    came = {who: caller.since(before.callers.get(who)) for who, caller in after.callers.items()}
    handled = None if before.handled is None or after.handled is None else after.handled - before.handled
    blind = before.blind or after.blind
    evidence: dict[str, object] = {
        "requests": sent.answered,
        "prompt_tokens": sent.tokens,
        "bytes_received_from": came,
        "connected_from": {who: list(caller.addresses) for who, caller in after.callers.items()},
        "requests_through_sidecar": handled,
        **({"nodes_not_asked": blind} if blind else {}),
    }
    verdict: Verdict
    if sent.failure:
        verdict, words = FAIL, sent.failure
    elif worker.direct:
        verdict, words = _direct(worker, came, handled, sent, blind)
    else:
        verdict, words = _through_sidecar(came, handled, sent, blind)
    return TargetResult(target, verdict, words if verdict == PASS else f"{target}: {words}", evidence)


def _direct(
    worker: Worker, came: Mapping[str, int | None], handled: int | None, sent: Sent, blind: str
) -> tuple[Verdict, str]:
    port = worker.direct.rpartition(":")[2]
    if handled:
        return FAIL, f"{handled} of {sent.answered} requests still came through its sidecar"
    if blind:
        known = "who carries its requests" if handled is None else "who brings them, not through its sidecar,"
        return SKIP, f"{known} is not known: {blind}"
    if FRONTEND not in came:
        return FAIL, f"the frontend has no connection to its gRPC port {port}"
    direct, through = came[FRONTEND], came.get(SIDECAR, 0)
    if direct is None or through is None:
        if handled is None:
            return SKIP, "the frontend is connected to its gRPC port, but nothing counts what comes from whom"
        return PASS, "the frontend is connected to its gRPC port, and its sidecar carries no request"
    if direct < sent.tokens or through * sent.answered >= sent.tokens:
        words = f"{direct} bytes came from the frontend at its gRPC port {port} and {through} from its sidecar"
        return FAIL, f"{words}, for {sent.answered} requests of {sent.tokens} tokens"
    return PASS, "its requests come from the frontend, and none through its sidecar"


def _through_sidecar(
    came: Mapping[str, int | None], handled: int | None, sent: Sent, blind: str
) -> tuple[Verdict, str]:
    if handled is not None and handled < sent.answered:
        return FAIL, f"only {handled} of {sent.answered} requests came through its sidecar, which is to carry all"
    through = came.get(SIDECAR)
    if through is not None and through < sent.tokens:
        return FAIL, f"only {through} bytes came from its sidecar, for {sent.answered} requests of {sent.tokens} tokens"
    if FRONTEND in came:
        return FAIL, "the frontend is connected to its gRPC port, but the plan keeps it on the request plane"
    if handled is None and through is None:
        if not blind and SIDECAR not in came:
            return FAIL, "its sidecar has no connection to its gRPC port"
        return SKIP, f"who carries its requests is not known: {blind or 'nothing counts what comes from whom'}"
    return PASS, "its requests come through its sidecar"


def _send(context: Context, instances: Mapping[Target, Card], target: Target) -> Sent:
    ranks = sorted(rank for rank in instances if rank.worker == target.worker)
    ways = list(product(ranks, context.deployment.frontends))  # each frontend has connections of its own
    answers: list[Answer] = []
    for turn, (rank, frontend) in enumerate(islice(cycle(ways), max(REQUESTS, len(ways)))):
        pinned = context.pin(instances, rank, turn)
        if not isinstance(pinned, Pin):
            return Sent(len(answers), 0, pinned)
        try:
            answers.append(context.chat(f"{secrets.token_hex(8)} {'dispatch ' * _WORDS}", pinned.request, frontend))
        except NetError as error:
            return Sent(len(answers), 0, str(error))
    return Sent(len(answers), sum(answer.prompt_tokens for answer in answers))


def _with_card(result: TargetResult, worker: Worker, cards: Sequence[Card]) -> TargetResult:
    said: dict[str, object] = {
        "planned": worker.direct or None,
        "advertised": sorted({card.native_endpoint for card in cards if card.native_endpoint}),
        "mode": sorted({card.native_mode for card in cards if card.native_mode}),
    }
    return replace(result, evidence={**said, **result.evidence})
