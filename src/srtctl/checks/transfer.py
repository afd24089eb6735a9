"""Check `transfer`: with prefill and decode, both legs of a request belong together and lie where they were sent.

A request is pinned to a prefill and a decode rank. The frontend's log must have one leg of each phase under the
request's id, on those ranks, of two different workers. Where the engines log their bootstrap rooms, both must name the
same room; its remainder by the prefill workers' DP size is the prefill rank (Dynamo 1.6.1 with the KV router).
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

from srtctl.checks import logs
from srtctl.checks.context import Context
from srtctl.checks.discovery import Card
from srtctl.checks.logs import Leg
from srtctl.checks.model import FAIL, PASS, SKIP, Outcome, Target, TargetResult
from srtctl.checks.net import NetError
from srtctl.checks.pinning import Pin

_ENDED_WELL = ("success", "cancelled")  # of an answer that the client has whole
_PHASES = {"prefill": "Prefill", "decode": "Decode"}


def run(context: Context, targets: Sequence[Target]) -> Outcome:
    """A pinned request to each target, and what the logs have of it."""
    try:
        instances = context.instances()
    except NetError as error:
        return Outcome(tuple(TargetResult(target, FAIL, f"{target}: {error}") for target in targets))
    return Outcome(tuple(context.each(lambda target: _check(context, instances, target), targets).values()))


def _check(context: Context, instances: Mapping[Target, Card], target: Target) -> TargetResult:
    pinned = context.pin(instances, target)
    if not isinstance(pinned, Pin):
        return TargetResult(target, FAIL, f"{target}: {pinned}")
    try:
        answer = context.chat(f"{secrets.token_hex(32)} {target}", pinned.request)
    except NetError as error:
        return TargetResult(target, FAIL, f"{target}: {error}")
    names = list(context.deployment.frontends)
    settled = context.deadline.within(context.limits.settle)
    while True:
        log = [line for name in names for line in logs.lines(context.deployment.run_dir, f"{name}.frontend")]
        found = logs.legs(log, answer.request_id)
        if len(found) == len(_PHASES) or not settled.remaining():
            break
        context.pause()
    rooms = _rooms(context, pinned, instances, answer.request_id)
    evidence: dict[str, object] = {
        "request_id": answer.request_id,
        "legs": {phase: f"{leg.worker_id}/{leg.dp_rank} {leg.outcome}" for phase, leg in sorted(found.items())},
        "bootstrap": {target.worker: card.bootstrap for target, card in instances.items() if card.bootstrap},
        "bootstrap_rooms": rooms,
    }
    if not any(map(logs.routed, log)):
        reason = f"logs/{names[0]}.frontend.log has no routed requests at all; is the frontend's log level info?"
        return TargetResult(target, SKIP, reason, evidence)
    wrong = complaint(found, pinned.served_by) or room_complaint(
        rooms, pinned, _prefill_size(context, pinned, instances)
    )
    if wrong:
        return TargetResult(target, FAIL, f"{target}: request {answer.request_id}: {wrong}", evidence)
    return TargetResult(target, PASS, "both legs of a request belong together", evidence)


def complaint(found: Mapping[str, Leg], served_by: Mapping[str, int]) -> str:
    """What is wrong with the logged legs of a request that was to be served by `served_by`; empty if nothing is."""
    for role, phase in _PHASES.items():
        leg = found.get(phase)
        if leg is None:
            return f"the frontend logged no {phase} leg"
        if (leg.worker_id, leg.dp_rank) != (served_by[f"{role}_worker_id"], served_by[f"{role}_dp_rank"]):
            return f"its {phase} leg went to worker id {leg.worker_id} rank {leg.dp_rank}, not where it was pinned"
        if leg.outcome not in _ENDED_WELL:
            return f"its {phase} leg ended as {leg.outcome!r}"
    if found["Prefill"].worker_id == found["Decode"].worker_id:
        return "both legs ran on one worker, so nothing was transferred"
    return ""


def room_complaint(rooms: Mapping[str, int | None], pinned: Pin, prefill_size: int) -> str:
    """What is wrong with the bootstrap rooms that the engines logged; empty where they log none."""
    prefill, decode = rooms["prefill"], rooms["decode"]
    if prefill is None or decode is None:
        return ""
    if prefill != decode:
        return f"the prefill engine had it in bootstrap room {prefill}, the decode engine looked in {decode}"
    if prefill % prefill_size != pinned.served_by["prefill_dp_rank"]:
        return f"bootstrap room {prefill} belongs to prefill rank {prefill % prefill_size}"
    return ""


def _worker_of(pinned: Pin, instances: Mapping[Target, Card], role: str) -> str:
    wanted = pinned.served_by[f"{role}_worker_id"]
    return next(target.worker for target, card in instances.items() if card.worker_id == wanted)


def _rooms(context: Context, pinned: Pin, instances: Mapping[Target, Card], request_id: str) -> dict[str, int | None]:
    found = {}
    for role in _PHASES:
        leader = context.deployment.worker(_worker_of(pinned, instances, role)).leader
        found[role] = logs.room(logs.lines(context.deployment.run_dir, f"{leader}.engine"), request_id)
    return found


def _prefill_size(context: Context, pinned: Pin, instances: Mapping[Target, Card]) -> int:
    return context.deployment.worker(_worker_of(pinned, instances, "prefill")).dp_size
