"""Which post-launch checks a plan carries, with their targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from srtctl.plan.model import Check, CheckTarget, Worker
from srtctl.recipe.model import CheckSetting


def select_checks(workers: Sequence[Worker], mode: str, settings: Mapping[str, CheckSetting]) -> tuple[Check, ...]:
    """The checks that apply to what is planned, in the order in which layers fail.

    Every rank of every worker is registered and pinned; KV events are proven for each rank whose events the router
    indexes: with prefill and decode that is the prefill side only, since the decode router keeps no index.
    """
    ranks = tuple(CheckTarget(w.name, r) for w in workers for r in range(w.dp_size))
    indexed = [w for w in workers if w.role != "decode"] if mode == "kv" else []
    publishing = tuple(
        CheckTarget(w.name, rank)
        for w in indexed
        for rank in sorted(p.dp_rank for proc in w.processes for p in proc.publishers)
    )
    # Outside KV mode the router neither honours a rank nor names one in its answer.
    pinnable = ranks if mode == "kv" else ()
    candidates = {"registration": ranks, "rank_routing": pinnable, "kv_events": publishing}
    chosen = []
    for name, targets in candidates.items():
        setting = settings.get(name, CheckSetting())
        if targets and setting.enabled:
            chosen.append(Check(name, setting.on_failure, targets, setting.timeout))
    return tuple(chosen)
