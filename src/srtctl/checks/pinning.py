"""How a request is sent to one rank of one worker, and how its answer says where it went (Dynamo's `nvext`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from srtctl.checks.deployment import Deployment
from srtctl.checks.discovery import Card
from srtctl.checks.model import Target

_OTHER_LEG = {"prefill": "decode", "decode": "prefill"}


@dataclass(frozen=True)
class Pin:
    """`request` goes into `nvext`; `served_by` is the `nvext.worker_id` of an answer from the pinned rank."""

    request: Mapping[str, int]
    served_by: Mapping[str, int]


def partners(deployment: Deployment, instances: Mapping[Target, Card], target: Target) -> int:
    """How many ranks of the other role `target` can be paired with; 1 for an aggregated rank, which needs none."""
    role = deployment.worker(target.worker).role
    return 1 if role == "agg" else len(_of_role(deployment, instances, _OTHER_LEG[role]))


def pin(
    deployment: Deployment,
    instances: Mapping[Target, Card],
    target: Target,
    turn: int = 0,
    broken: Collection[Target] = (),
) -> Pin | str:
    """The pin of `target`, or why it has none.

    A prefill or decode rank gets a partner of the other role in turn, one that is not known to be `broken` if there is.
    """
    if target not in instances:
        return "not registered"
    role = deployment.worker(target.worker).role
    if role == "agg":
        prefill = decode = target
    else:
        registered = _of_role(deployment, instances, _OTHER_LEG[role])
        others = [other for other in registered if other not in broken] or registered
        if not others:
            return f"no {_OTHER_LEG[role]} worker is registered to pair it with"
        partner = others[(_of_role(deployment, instances, role).index(target) + turn) % len(others)]
        prefill, decode = (target, partner) if role == "prefill" else (partner, target)
    served_by = {
        "prefill_worker_id": instances[prefill].worker_id,
        "prefill_dp_rank": prefill.rank,
        "decode_worker_id": instances[decode].worker_id,
        "decode_dp_rank": decode.rank,
    }
    if role == "agg":
        return Pin({"backend_instance_id": served_by["decode_worker_id"], "dp_rank": decode.rank}, served_by)
    request = {name: value for name, value in served_by.items() if name != "decode_dp_rank"}
    return Pin({**request, "dp_rank": decode.rank}, served_by)


def misrouted(pin: Pin, served_by: Mapping[str, int], instances: Mapping[Target, Card]) -> str:
    """Who answered in place of the pinned rank, in the plan's words where the plan has it; empty if nobody did."""
    for leg in ("prefill", "decode"):
        fields = f"{leg}_worker_id", f"{leg}_dp_rank"
        served = tuple(served_by.get(field) for field in fields)
        if served == tuple(pin.served_by[field] for field in fields):
            continue
        if None in served:
            return "a rank that the answer does not name"
        names = (str(target) for target, card in instances.items() if (card.worker_id, target.dp_rank) == served)
        return next(names, f"worker id {served[0]} rank {served[1]}, which the plan does not have")
    return ""


def as_evidence(served_by: Mapping[str, int]) -> dict[str, str]:
    """Ids as text: a worker id does not fit in the double that other JSON readers make of it."""
    return {name: str(value) for name, value in sorted(served_by.items())}


def _of_role(deployment: Deployment, instances: Mapping[Target, Card], role: str) -> list[Target]:
    return sorted(target for target in instances if deployment.worker(target.worker).role == role)
