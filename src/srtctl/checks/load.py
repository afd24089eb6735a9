"""Check `load`: many requests at a time all succeed, and every one generates tokens.

40 requests, 4 at a time, is what the public validation of these deployments used. Throughput is no claim of this check.
They go where clients send them; behind nginx more than one frontend must have had some.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from srtctl.checks.context import Context
from srtctl.checks.frontend import Answer
from srtctl.checks.model import FAIL, PASS, Outcome, Target, TargetResult, Verdict
from srtctl.checks.net import Deadline, NetError

REQUESTS, CONCURRENCY = 40, 4
#: From so many requests on, all of them at one of two frontends is no chance: 2 in a million where nginx hashes.
_SPREAD_FROM = 20


def run(context: Context, targets: Sequence[Target]) -> Outcome:
    """The load, once; its one target is the whole deployment."""
    requests = context.settings.get("requests", REQUESTS)
    concurrency = context.settings.get("concurrency", CONCURRENCY)
    deadline = context.deadline.within(context.limits.load)
    before = _requests_started(context)
    started = time.monotonic()
    with ThreadPoolExecutor(concurrency) as pool:
        said = list(pool.map(lambda number: _ask(context, number, deadline), range(requests)))
    seconds = time.monotonic() - started
    answers = [item for item in said if isinstance(item, Answer)]
    failures = Counter(item for item in said if isinstance(item, str))
    empty = sum(not answer.completion_tokens for answer in answers)
    evidence: dict[str, object] = {
        "requests": requests,
        "concurrency": concurrency,
        "succeeded": len(answers),
        "without_tokens": empty,
        "completion_tokens": sum(answer.completion_tokens for answer in answers),
        "seconds": round(seconds, 3),
        "answered_by": _served(answers),
        "failures": dict(failures),
    }
    wrong = _not_spread(before, _requests_started(context), requests, evidence)
    if failures:
        words, count = failures.most_common(1)[0]
        wrong.append(f"{sum(failures.values())} of {requests} requests failed, {count} of them with: {words}")
    if empty:
        wrong.append(f"{empty} of {requests} requests were answered without generating a token")
    verdict: Verdict = FAIL if wrong else PASS
    message = "; ".join(wrong) or f"{len(answers)} of {requests} requests succeeded, {concurrency} at a time"
    return Outcome(tuple(TargetResult(target, verdict, message, evidence) for target in targets))


def _ask(context: Context, number: int, deadline: Deadline) -> Answer | str:
    if not deadline.remaining():
        return "not sent, the time for the load was over"
    try:
        return context.chat(f"{secrets.token_hex(24)} {number}", {})
    except NetError as error:
        return str(error)


def _requests_started(context: Context) -> dict[str, int] | NetError:
    """How many requests each of several frontends has had; nothing of one."""
    try:
        return context.requests_started() if len(context.deployment.frontends) > 1 else {}
    except NetError as error:
        return error


def _not_spread(
    before: dict[str, int] | NetError, after: dict[str, int] | NetError, requests: int, evidence: dict[str, object]
) -> list[str]:
    """What is wrong with how nginx spread the load, which goes to the evidence; empty if nothing is."""
    if isinstance(before, NetError) or isinstance(after, NetError):
        unknown = before if isinstance(before, NetError) else after
        return [f"how many requests each frontend had is not known: {unknown}"]
    had = {name: count - before[name] for name, count in after.items()}
    if not had:
        return []
    evidence["requests_by_frontend"] = had
    if requests >= _SPREAD_FROM and sum(map(bool, had.values())) < 2:
        return [f"nginx sent all {requests} requests to one of {', '.join(had)}"]
    return []


def _served(answers: Sequence[Answer]) -> dict[str, int]:
    """How many requests each `worker id/rank` answered, by the leg that generates."""
    names = ("decode_worker_id", "decode_dp_rank")
    return dict(
        sorted(Counter("/".join(str(answer.served_by.get(name, "?")) for name in names) for answer in answers).items())
    )
