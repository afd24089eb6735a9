"""Check `cache_reuse`: prompts that a rank has cached find their way back to it without a pin, again and again.

Each rank stores one new prompt by a pinned request; then the prompts are repeated without a pin, `repeats` requests in
turn over all ranks (each at least once), one by one on the idle deployment. A hit is the router's own `kv_hit_rate` above that of the new
prompt, at that rank; where the engine tells of cached tokens, it must have some. Every repeat must hit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from srtctl.checks.context import Context
from srtctl.checks.discovery import Card
from srtctl.checks.frontend import Answer
from srtctl.checks.kv_events import prompt
from srtctl.checks.model import FAIL, PASS, Outcome, Target, TargetResult
from srtctl.checks.net import NetError
from srtctl.checks.pinning import Pin, as_evidence

REPEATS = 28


@dataclass
class _Tally:
    """What the repeats of one rank's prompt came to; `text` is empty while it is not stored."""

    text: str = ""
    cold: float = 0.0
    asked: int = 0
    hits: int = 0
    wrong: list[str] = field(default_factory=list)


def run(context: Context, targets: Sequence[Target]) -> Outcome:
    """Store, then repeat in turn; the tally of each target."""
    try:
        instances = context.instances()
    except NetError as error:
        return Outcome(tuple(TargetResult(target, FAIL, f"{target}: {error}") for target in targets))
    tallies = context.each(lambda target: _store(context, instances, target), targets)
    stored = [target for target in targets if tallies[target].text]
    for number in range(max(context.settings.get("repeats", REPEATS), len(stored)) if stored else 0):
        target = stored[number % len(stored)]
        _repeat(context, instances, target, tallies[target])
    return Outcome(tuple(_result(target, tallies[target]) for target in targets))


def _store(context: Context, instances: Mapping[Target, Card], target: Target) -> _Tally:
    """A prompt that each frontend's router knows to lie on the target; new ones until the time is over."""
    pinned = context.pin(instances, target)
    if not isinstance(pinned, Pin):
        return _Tally(wrong=[pinned])
    card = instances[target]
    deadline = context.deadline.within(context.limits.kv_events)
    while True:
        text = prompt(card.block_size, card.context_length)
        try:
            cold = context.chat(text, pinned.request).hit_rate or 0.0
            settled = deadline.within(context.limits.settle)
            unaware = list(context.deployment.frontends)
            while True:
                unaware = [by for by in unaware if (context.chat(text, pinned.request, by).hit_rate or 0.0) <= cold]
                if not unaware:
                    return _Tally(text, cold)
                if not settled.remaining():
                    break
                context.pause()
        except NetError as error:
            return _Tally(wrong=[str(error)])
        if not deadline.remaining():
            return _Tally(wrong=["the router never knew a prompt that it had answered"])


def _repeat(context: Context, instances: Mapping[Target, Card], target: Target, tally: _Tally) -> None:
    tally.asked += 1
    try:
        answer = context.chat(tally.text, {})
    except NetError as error:
        tally.wrong.append(str(error))
        return
    role = context.deployment.worker(target.worker).role
    wrong = _missed(answer, instances[target].worker_id, target, role, tally.cold)
    if wrong:
        tally.wrong.append(wrong)
    else:
        tally.hits += 1


def _missed(answer: Answer, worker_id: int, target: Target, role: str, cold: float) -> str:
    """Why a repeat was no hit; empty if it was one. In P/D the engine's word is that of the decode leg."""
    leg = "prefill" if role == "prefill" else "decode"
    served = {name: value for name, value in answer.served_by.items() if name.startswith(leg)}
    if served != {f"{leg}_worker_id": worker_id, f"{leg}_dp_rank": target.dp_rank}:
        return f"a repeat went to another rank: {as_evidence(served)}"
    if (answer.hit_rate or 0.0) <= cold:
        return f"the router had a hit rate of {answer.hit_rate or 0:g} for a repeat"
    if role == "agg" and answer.cached_tokens == 0:
        return "the router sent a repeat to the right rank, but the engine had none of it cached"
    return ""


def _result(target: Target, tally: _Tally) -> TargetResult:
    evidence: dict[str, object] = {"repeats": tally.asked, "hits": tally.hits, "hit_rate_new": tally.cold}
    if not tally.wrong:
        return TargetResult(target, PASS, f"{tally.hits} of {tally.asked} repeats hit its cache", evidence)
    evidence["misses"] = tally.wrong
    if not tally.text:
        return TargetResult(target, FAIL, f"{target}: {tally.wrong[0]}", evidence)
    words = f"{target}: {tally.hits} of {tally.asked} repeats hit its cache: {tally.wrong[0]}"
    return TargetResult(target, FAIL, words, evidence)
