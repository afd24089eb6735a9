"""Which post-launch checks a plan carries, with their targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from srtctl.diagnostics import Collector
from srtctl.plan.model import Check, CheckTarget, Worker
from srtctl.recipe.model import CheckSetting


def select_checks(
    workers: Sequence[Worker], mode: str, settings: Mapping[str, CheckSetting], found: Collector
) -> tuple[Check, ...]:
    """The checks that apply to what is planned, in the order in which layers fail.

    Every rank of every worker is registered and pinned; KV events are proven for each rank whose events the router
    indexes: with prefill and decode that is the prefill side only, since the decode router keeps no index.
    `mode` is Dynamo's router mode. Only workers behind sidecars can be told apart in discovery.
    """
    if not all(w.processes[0].sidecar for w in workers):
        if any(setting.enabled for setting in settings.values()):
            found.warning(
                "plan/no-checks",
                "nothing will prove this deployment after the launch: the checks need Dynamo and sidecars",
                path="checks",
                hint="use `sidecar: true` with frontend `dynamo`, or say `checks: false`",
            )
        return ()
    ranks = tuple(CheckTarget(w.name, r) for w in workers for r in range(w.dp_size))
    # Outside KV mode the router neither honours a rank nor names one in its answer, and it indexes nothing.
    pinnable = ranks if mode == "kv" else ()
    indexed = [w for w in workers if w.role != "decode"] if mode == "kv" else []
    publishing = tuple(CheckTarget(w.name, rank) for w in indexed for rank in _published(w))
    candidates = {"registration": ranks, "rank_routing": pinnable, "kv_events": publishing}
    chosen = []
    for name, targets in candidates.items():
        setting = settings.get(name, CheckSetting())
        if targets and setting.enabled:
            chosen.append(Check(name, setting.on_failure, targets, setting.timeout))
    return tuple(chosen)


def _published(worker: Worker) -> list[int]:
    return sorted(p.dp_rank for process in worker.processes for p in process.publishers)
