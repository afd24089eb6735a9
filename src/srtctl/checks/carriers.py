"""Who brings requests to an engine: its frontend or its sidecar, as the engine's own node sees it, and the sidecar too."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from srtctl.checks import asking
from srtctl.checks.context import Context
from srtctl.checks.deployment import Process, Worker
from srtctl.checks.frontend import counter
from srtctl.checks.net import NetError, fetch
from srtctl.checks.sockets import Connection

HANDLED = "dynamo_component_requests_total"  # ai-dynamo 1.6.1, at a sidecar's status server
FRONTEND, SIDECAR = "the frontend", "its sidecar"
LOOPBACK = "127."


@dataclass(frozen=True)
class Caller:
    """Who is connected to an engine's gRPC port: from which addresses, and how many bytes came from there so far (None:
    the kernel does not count)."""

    addresses: tuple[str, ...]
    received: int | None

    def since(self, before: Caller | None) -> int | None:
        """Bytes that came since an earlier look, in which this caller may not have been connected."""
        if self.received is None or (before is not None and before.received is None):
            return None
        return self.received - (before.received or 0 if before else 0)


@dataclass(frozen=True)
class Look:
    """What came in at one worker so far: its callers, and how many requests its sidecar counted (None: it does not
    tell). `blind` says why no node was asked."""

    callers: Mapping[str, Caller]
    handled: int | None
    blind: str = ""


def looks(context: Context, workers: Sequence[Worker]) -> dict[str, Look]:
    """One look at each worker, by name."""
    deployment = context.deployment
    served = {
        worker.name: [process for process in worker.processes if process.listens.get("grpc")] for worker in workers
    }
    everywhere = {process.listens["grpc"] for processes in served.values() for process in processes}
    frontends = {single.node for single in deployment.singles if "frontend" in single.parts}
    nodes = {process.node for processes in served.values() for process in processes} | frontends
    try:
        seen, blind = asking.connections(deployment, nodes, everywhere) if everywhere else {}, ""
    except NetError as error:
        seen, blind = {}, str(error)
    there = _There(
        {(node, end.local, end.remote): end for node, all_ends in seen.items() for end in all_ends},
        frozenset(frontends),
        frozenset(deployment.nodes[node].address for node in frontends),
    )
    return {
        worker.name: Look(_callers(served[worker.name], seen, there), _handled(context, worker), blind)
        for worker in workers
    }


@dataclass(frozen=True)
class _There:
    """The ends of connections that the nodes see, by node and both addresses; and where the frontends are."""

    ends: Mapping[tuple[int, str, str], Connection]
    frontends: frozenset[int]
    addresses: frozenset[str]


def _callers(
    processes: Sequence[Process], seen: Mapping[int, Sequence[Connection]], there: _There
) -> dict[str, Caller]:
    found: dict[str, list[Connection]] = defaultdict(list)
    for process in processes:
        for connection in seen.get(process.node, ()):
            if connection.local.endswith(f":{process.listens['grpc']}"):
                found[_caller(connection, process, there)].append(connection)
    return {who: _together(connections) for who, connections in sorted(found.items())}


def _together(connections: Sequence[Connection]) -> Caller:
    counts = [connection.received for connection in connections if connection.received is not None]
    addresses = sorted({connection.remote.rpartition(":")[0] for connection in connections})
    return Caller(tuple(addresses), sum(counts) if len(counts) == len(connections) else None)


def _caller(connection: Connection, process: Process, there: _There) -> str:
    """Who is at the other end: by the process that holds it, where that is visible, else by its node or address."""
    local = connection.remote.startswith(LOOPBACK)
    places = [process.node] if local else sorted({where for where, _, _ in there.ends})
    others = {where: there.ends.get((where, connection.remote, connection.local)) for where in places}
    holder = next((end for end in others.values() if end and end.process), None)
    if holder is None:
        if local:
            return SIDECAR
        address = connection.remote.rpartition(":")[0]
        its = address in there.addresses or any(end and where in there.frontends for where, end in others.items())
        return FRONTEND if its else f"an unknown process at {address}"
    if holder.part == "frontend":
        return FRONTEND
    return SIDECAR if (holder.process, holder.part) == (process.name, "sidecar") else f"{holder.process} {holder.part}"


def _handled(context: Context, worker: Worker) -> int | None:
    """Requests that its sidecars took from the request plane, by their own count; None where one does not tell."""
    total = 0
    for address in worker.serving:
        try:
            answer = fetch(f"http://{address}/metrics", timeout=context.timeout())
        except NetError:
            return None
        found = counter(answer.body, HANDLED, dynamo_endpoint="generate")
        if found is None:
            return None
        total += found
    return total
