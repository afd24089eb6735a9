"""Check `kv_events`: the KV events of a (worker, rank) reach the router, and the router uses them.

The proof is the router's own `kv_hit_rate`: a new prompt pinned to the rank is unknown to it, the same prompt again
is known, and the same prompt without a pin goes to that rank. The engine's cached tokens prove nothing about events.
Each of several frontends has an index of its own, and each must have got the events.

* A new prompt has a hit rate of 0 but for the chat template's own first blocks, which every prompt shares: the
  repeat must be known better than the first request was.
* ZMQ PUB/SUB drops what was published before the relay had subscribed, and nothing in discovery says that it has:
  each try has a new prompt, and one lost event is not a fault. All targets try in the same round, so one silent
  rank costs its deadline once, however many ranks are silent.
* Pinned requests of different ranks do not disturb each other and run side by side; the requests without a pin run
  one by one on the then idle deployment, for the router weighs load against cached blocks.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from srtctl.checks.context import Context
from srtctl.checks.discovery import Card
from srtctl.checks.frontend import Answer
from srtctl.checks.model import FAIL, PASS, SKIP, Outcome, Target, TargetResult
from srtctl.checks.net import Deadline, NetError
from srtctl.checks.pinning import Pin, as_evidence, misrouted

_BLOCKS = 8
_CHARACTERS_A_TOKEN = 3  # more than any tokenizer makes of random hex digits
_SHORTEST = 64


@dataclass(frozen=True)
class Try:
    """One prompt at one target: what is wrong (empty if it proved the target), whether an event was lost, evidence."""

    complaint: str
    text: str = ""
    silent: bool = False
    evidence: Mapping[str, object] = field(default_factory=dict)


def run(context: Context, targets: Sequence[Target]) -> Outcome:
    """Rounds of tries over the targets not yet proven, until all are or the time is over."""
    try:
        instances = context.instances()
    except NetError as error:
        return Outcome(tuple(TargetResult(target, FAIL, f"{target}: {error}") for target in targets))
    started = time.monotonic()
    deadline = context.deadline.within(context.limits.kv_events)
    tries: dict[Target, list[Try]] = {target: [] for target in targets}
    pending = [target for target in targets if context.deployment.worker(target.worker).role != "decode"]
    while pending:
        seen = context.each(lambda target: _pinned(context, instances, target, deadline), pending)
        for target, attempt in seen.items():
            tries[target].append(attempt if attempt.complaint else _unpinned(context, instances, target, attempt))
        pending = [target for target in pending if tries[target][-1].complaint]
        if not deadline.remaining():
            break
        if pending:
            context.pause()
    seconds = time.monotonic() - started
    return Outcome(tuple(_result(context, target, tries[target], seconds) for target in targets))


def prompt(block_size: int, context_length: int) -> str:
    """A new random prompt of about eight KV blocks or more, at most half of the context (0: unknown)."""
    length = max(_SHORTEST, _BLOCKS * block_size * _CHARACTERS_A_TOKEN)
    if context_length:
        length = min(length, context_length // 2)
    return secrets.token_hex(length // 2)


def _pinned(context: Context, instances: Mapping[Target, Card], target: Target, deadline: Deadline) -> Try:
    """A new prompt to the target, then again through each frontend until its router knows it or it had time to settle.

    Only one frontend has sent the new prompt, so what another's router knows of it can only come from the events.
    """
    pinned = context.pin(instances, target)
    if not isinstance(pinned, Pin):
        return Try(pinned)
    card = instances[target]
    text = prompt(card.block_size, card.context_length)
    frontends = list(context.deployment.frontends)
    again: dict[str, Answer] = {}
    try:
        first = context.chat(text, pinned.request, frontends[0])
        settled = deadline.within(context.limits.settle)
        for name in frontends:
            again[name] = context.chat(text, pinned.request, name)
            while _known(first.hit_rate, again[name].hit_rate) is False and settled.remaining():
                context.pause()
                again[name] = context.chat(text, pinned.request, name)
    except NetError as error:
        return Try(str(error))
    rates = {name: answer.hit_rate for name, answer in again.items()}
    last = again[frontends[-1]]
    evidence = {
        "worker_id": str(card.worker_id),
        "block_size": card.block_size,
        "prompt_tokens": last.prompt_tokens,
        "hit_rate_new": first.hit_rate,
        "hit_rate_repeated": rates if len(rates) > 1 else last.hit_rate,
        "engine_cached_tokens": last.cached_tokens,
    }
    for answer in (first, *again.values()):
        if other := misrouted(pinned, answer.served_by, instances):
            return Try(f"a request pinned to it was answered by {other}", evidence=evidence)
    known = {name: _known(first.hit_rate, rate) for name, rate in rates.items()}
    if None in known.values():
        return Try("the answers have no kv_hit_rate; is the frontend's router mode kv?", evidence=evidence)
    unaware = [name for name, knows in known.items() if not knows]
    if unaware:
        router = _router(context, *unaware)
        return Try(f"no Stored event reached {router}", silent=True, evidence=evidence)
    return Try("", text, evidence=evidence)


def _router(context: Context, *frontends: str) -> str:
    return f"the router of {', '.join(frontends)}" if len(context.deployment.frontends) > 1 else "the router"


def _known(first: float | None, again: float | None) -> bool | None:
    return None if first is None or again is None else again > first


def _unpinned(context: Context, instances: Mapping[Target, Card], target: Target, attempt: Try) -> Try:
    """The prompt of `attempt` once more without a pin through each frontend: its router must find the rank that has it."""
    leg = "prefill" if context.deployment.worker(target.worker).role == "prefill" else "decode"
    wanted = {f"{leg}_worker_id": instances[target].worker_id, f"{leg}_dp_rank": target.dp_rank}
    for name in context.deployment.frontends:
        try:
            answer = context.chat(attempt.text, {}, name)
        except NetError as error:
            return replace(attempt, complaint=f"{error} (request without a pin)")
        served = {key: value for key, value in answer.served_by.items() if key.startswith(leg)}
        attempt = replace(attempt, evidence={**attempt.evidence, "unpinned_answered_by": as_evidence(served)})
        if served != wanted:
            router = _router(context, name)
            complaint = f"{router} knows its blocks, but sent the same prompt without a pin to another rank"
            return replace(attempt, complaint=complaint)
    return attempt


def _result(context: Context, target: Target, tries: Sequence[Try], seconds: float) -> TargetResult:
    if not tries:
        return TargetResult(target, SKIP, "the router keeps no KV index of decode workers, so nothing shows its events")
    last = tries[-1]
    evidence = {"tries": len(tries), **last.evidence}
    if not last.complaint:
        router = "every frontend's router" if len(context.deployment.frontends) > 1 else "the router"
        return TargetResult(target, PASS, f"{router} knew a prompt by the rank's Stored events", evidence)
    count = f"{len(tries)} {'try' if len(tries) == 1 else 'tries'}"
    if not last.silent:
        return TargetResult(target, FAIL, f"{target}: {last.complaint} ({count} in {seconds:.0f} s)", evidence)
    cached = last.evidence["engine_cached_tokens"]
    message = (
        f"{target}: {last.complaint} in {seconds:.0f} s ({count}, the engine itself reported {cached or 0} cached "
        f"tokens); {_hint(context, target)}"
    )
    return TargetResult(target, FAIL, message, evidence)


def _hint(context: Context, target: Target) -> str:
    publisher = context.deployment.worker(target.worker).publishers.get(target.rank)
    if publisher is None:
        return "the plan has no KV publisher for it"
    return (
        f"does {publisher.process} publish on {publisher.place}? "
        f"See logs/{publisher.process}.engine.log and logs/{publisher.process}.sidecar.log"
    )
