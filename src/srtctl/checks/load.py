"""Check `load`: many requests at a time all succeed, and every one generates tokens.

40 requests, 4 at a time, is what the public validation of these deployments used. Throughput is no claim of this check.
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


def run(context: Context, targets: Sequence[Target]) -> Outcome:
    """The load, once; its one target is the whole deployment."""
    requests = context.settings.get("requests", REQUESTS)
    concurrency = context.settings.get("concurrency", CONCURRENCY)
    deadline = context.deadline.within(context.limits.load)
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
    wrong = []
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


def _served(answers: Sequence[Answer]) -> dict[str, int]:
    """How many requests each `worker id/rank` answered, by the leg that generates."""
    names = ("decode_worker_id", "decode_dp_rank")
    return dict(
        sorted(Counter("/".join(str(answer.served_by.get(name, "?")) for name in names) for answer in answers).items())
    )
