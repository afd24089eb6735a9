"""What the gate of job.sbatch waits for."""

from __future__ import annotations

from itertools import pairwise

from srtctl.plan.direct import advertised_port
from srtctl.plan.model import Endpoint, Plan, Service
from srtctl.plan.names import ranges
from srtctl.plan.shell import word


def gate(plan: Plan) -> str:
    """The line of the gate: its timeout, the Python that can say what is missing (`-`: there are no checks), whom it asks."""
    python = word(plan.runtime.python) if plan.checks else "-"
    return " ".join(["gate", str(plan.health.gate), python, *_routers(plan)])


def _routers(plan: Plan) -> list[str]:
    """`NODES:PORT` of each of several frontends, for each has a router of its own; else of the endpoint, where there is one."""
    asked: tuple[Service | Endpoint, ...] = (plan.endpoint,) if plan.endpoint else ()
    nodes: dict[int | None, list[int]] = {}
    for place in plan.frontends if len(plan.frontends) > 1 else asked:
        nodes.setdefault(place.port, []).append(place.node)
    return [f"{ranges(sorted(those))}:{port}" for port, those in nodes.items()]


def expectations(plan: Plan) -> list[str]:
    """One line a worker type of Dynamo's KV router: aggregated workers count as `decode` there (ai-dynamo 1.6.1 metrics).

    Other routers export no registrations; there the gate waits until a model is listed.
    """
    out: list[str] = []
    if not any(("--router-mode", "kv") in pairwise(f.argv) for f in plan.frontends):
        return out
    for kind, roles in (("prefill", ("prefill",)), ("decode", ("decode", "agg"))):
        workers = [w for w in plan.workers if w.role in roles]
        if not workers:
            continue
        registering = [p for w in workers for p in w.processes if p.serves]
        published = sum(len(p.publishers) for w in workers for p in w.processes)
        ranks = sum(w.dp_size for w in workers)
        # With prefill and decode the decode router keeps no index, and exports nothing about sources.
        indexed = kind == "prefill" or workers[0].role == "agg"
        sources = " kv_sources=all" if indexed and published == ranks else ""
        out.append(f"expect {kind} workers={len(registering)} ranks={ranks}{sources}")
    return out


def reaches(plan: Plan) -> list[str]:
    """One line for each engine that a frontend calls directly, and each node that such a frontend runs on."""
    nodes = sorted({frontend.node for frontend in plan.frontends})
    engines = [(process, advertised_port(process.sidecar)) for worker in plan.workers for process in worker.processes]
    return [f"reach {node} {process.node} {port} {process.name}" for process, port in engines if port for node in nodes]
