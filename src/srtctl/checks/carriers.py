"""Who brings requests to an engine: its frontend or its sidecar, as the engine's own node sees it, and the sidecar too."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from srtctl.checks import asking
from srtctl.checks.context import Context
from srtctl.checks.deployment import Worker
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
    ports = {worker.name: _ports(worker) for worker in workers}
    everywhere = {port for mine in ports.values() for port in mine.values()}
    nodes = {node for mine in ports.values() for node in mine}
    nodes |= {single.node for single in deployment.singles if "frontend" in single.parts}
    try:
        seen, blind = asking.connections(deployment, nodes, everywhere) if everywhere else {}, ""
    except NetError as error:
        seen, blind = {}, str(error)
    ends = {(node, end.local, end.remote): end for node, all_ends in seen.items() for end in all_ends}
    return {
        worker.name: Look(_callers(ports[worker.name], seen, ends), _handled(context, worker), blind)
        for worker in workers
    }


def _ports(worker: Worker) -> dict[int, int]:
    """The gRPC port of each of its engine processes, by node."""
    return {process.node: port for process in worker.processes if (port := process.listens.get("grpc"))}


_Ends = Mapping[tuple[int, str, str], Connection]


def _callers(ports: Mapping[int, int], seen: Mapping[int, Sequence[Connection]], ends: _Ends) -> dict[str, Caller]:
    found: dict[str, list[Connection]] = defaultdict(list)
    for node, port in ports.items():
        for connection in seen.get(node, ()):
            if connection.local.endswith(f":{port}"):
                found[_caller(connection, node, ends)].append(connection)
    return {who: _together(connections) for who, connections in sorted(found.items())}


def _together(connections: Sequence[Connection]) -> Caller:
    counts = [connection.received for connection in connections if connection.received is not None]
    addresses = sorted({connection.remote.rpartition(":")[0] for connection in connections})
    return Caller(tuple(addresses), sum(counts) if len(counts) == len(connections) else None)


def _caller(connection: Connection, node: int, ends: _Ends) -> str:
    """Who is at the other end: by the process that holds it, where that is visible, else by its address."""
    local = connection.remote.startswith(LOOPBACK)
    places = [node] if local else sorted({where for where, _, _ in ends})
    others = [ends.get((where, connection.remote, connection.local)) for where in places]
    holder = next((end for end in others if end and end.process), None)
    if holder is None:
        return SIDECAR if local else FRONTEND
    return {"frontend": FRONTEND, "sidecar": SIDECAR}.get(holder.part, f"{holder.process} {holder.part}")


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
