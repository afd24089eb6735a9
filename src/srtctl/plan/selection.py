"""Which post-launch checks a plan carries, with their targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from srtctl.backends.openengine import SERVES
from srtctl.diagnostics import Collector
from srtctl.plan.direct import advertised_port
from srtctl.plan.model import Check, CheckTarget, Worker
from srtctl.recipe.model import CheckSetting

#: Engines that register without a sidecar, and were seen to name their status server then (ai-dynamo 1.6.1).
SELF_REGISTERING = frozenset({"mocker"})

#: The target of a check that looks at everything at once.
DEPLOYMENT = CheckTarget("", None)


def select_checks(
    workers: Sequence[Worker], mode: str, settings: Mapping[str, CheckSetting], found: Collector
) -> tuple[Check, ...]:
    """The checks that apply to what is planned, in the order in which layers fail (that of `settings`).

    `mode` is Dynamo's router mode. Only workers whose cards name a status server can be told apart in discovery.
    """
    if not all(w.processes[0].sidecar or w.engine in SELF_REGISTERING for w in workers):
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
    indexes nothing: what needs a pinned request is left out. Where any engine is called directly, the others are
    looked at too.
    """
    ranks = tuple(CheckTarget(w.name, rank) for w in workers for rank in range(w.dp_size))
    pinnable = ranks if mode == "kv" else ()
    published = tuple(CheckTarget(w.name, rank) for w in workers for rank in _published(w)) if mode == "kv" else ()
    decoding = {w.name for w in workers if w.role == "decode"}
    indexed = tuple(target for target in published if target.worker not in decoding)
    return {
        "placement": tuple(CheckTarget(w.name, None) for w in workers),
        "capabilities": tuple(CheckTarget(w.name, None) for w in workers if speaks_openengine(w)),
        "registration": ranks,
        "rank_routing": pinnable,
        "direct_dispatch": tuple(CheckTarget(w.name, None) for w in workers) if any(map(_advertises, workers)) else (),
        "publishers": published,
        "kv_events": indexed,
        "cache_reuse": indexed,
        "transfer": pinnable if decoding else (),
        "load": (DEPLOYMENT,),
    }


def _advertises(worker: Worker) -> bool:
    return any(advertised_port(process.sidecar) for process in worker.processes)


def _published(worker: Worker) -> list[int]:
    return sorted(p.dp_rank for process in worker.processes for p in process.publishers)


def speaks_openengine(worker: Worker) -> bool:
    """Whether the engine serves OpenEngine: its flags say so (`backends/openengine.py`)."""
    return not SERVES.isdisjoint(worker.processes[0].argv)
