"""Which post-launch checks a plan carries, with their targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from srtctl.diagnostics import Collector
from srtctl.plan.model import Check, CheckTarget, Worker
from srtctl.recipe.model import CheckSetting

#: The target of a check that looks at everything at once.
DEPLOYMENT = CheckTarget("", None)


def select_checks(
    workers: Sequence[Worker], mode: str, settings: Mapping[str, CheckSetting], found: Collector
) -> tuple[Check, ...]:
    """The checks that apply to what is planned, in the order in which layers fail (that of `settings`).

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
    targets = _targets(workers, mode)
    return tuple(
        Check(name, setting.on_failure, targets[name], setting.timeout, setting.own)
        for name, setting in settings.items()
        if setting.enabled and targets[name]
    )


def _targets(workers: Sequence[Worker], mode: str) -> dict[str, tuple[CheckTarget, ...]]:
    """Each check's targets; none where it does not apply.

    Every rank of every worker is registered and pinned. Every publisher is listened to; its events are proven at the
    router where the router indexes them: with prefill and decode that is the prefill side only, since the decode
    router keeps no index. Outside KV mode the router neither honours a rank nor names one in its answer, and it
    indexes nothing: what needs a pinned request is left out.
    """
    ranks = tuple(CheckTarget(w.name, rank) for w in workers for rank in range(w.dp_size))
    pinnable = ranks if mode == "kv" else ()
    published = tuple(CheckTarget(w.name, rank) for w in workers for rank in _published(w)) if mode == "kv" else ()
    decoding = {w.name for w in workers if w.role == "decode"}
    indexed = tuple(target for target in published if target.worker not in decoding)
    return {
        "placement": tuple(CheckTarget(w.name, None) for w in workers),
        "registration": ranks,
        "rank_routing": pinnable,
        "publishers": published,
        "kv_events": indexed,
        "cache_reuse": indexed,
        "transfer": pinnable if decoding else (),
        "load": (DEPLOYMENT,),
    }


def _published(worker: Worker) -> list[int]:
    return sorted(p.dp_rank for process in worker.processes for p in process.publishers)
