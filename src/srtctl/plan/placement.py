"""Which worker gets which GPUs of which node. A GPU has one owner or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from srtctl.diagnostics import Diagnostic
from srtctl.plan.names import count, name_list


@dataclass(frozen=True, slots=True)
class Request:
    """The workers of one role: `workers` of `gpus` GPUs each, on the nodes [first_node, first_node + nodes)."""

    role: str
    workers: int
    gpus: int
    first_node: int
    nodes: int
    spread: bool = False


@dataclass(frozen=True, slots=True)
class Placed:
    """One worker: its nodes in ascending order (node rank order) and the GPU indices on each."""

    name: str
    role: str
    nodes: tuple[int, ...]
    gpus: tuple[tuple[int, ...], ...]

    def shared_by(self, processes: int) -> Placed:
        """The same, with a node and its GPUs for each of `processes`: where several lie on a node they share it equally."""
        each = processes // len(self.nodes)
        parts = [
            (node, gpus[part * len(gpus) // each : (part + 1) * len(gpus) // each])
            for node, gpus in zip(self.nodes, self.gpus, strict=True)
            for part in range(each)
        ]
        return replace(self, nodes=tuple(node for node, _ in parts), gpus=tuple(gpus for _, gpus in parts))


@dataclass(slots=True)
class GpuLedger:
    """How many GPUs of each node are taken; GPUs are handed out from index 0 upwards, so the count says which."""

    gpus_per_node: int
    used: dict[int, int] = field(default_factory=dict)

    def free(self, node: int) -> int:
        return self.gpus_per_node - self.used.get(node, 0)

    def take(self, node: int, count: int) -> tuple[int, ...]:
        first = self.used.get(node, 0)
        self.used[node] = first + count
        return tuple(range(first, first + count))


def place(requests: Sequence[Request], gpus_per_node: int) -> tuple[list[Placed], list[Diagnostic]]:
    """Every worker of every request, or a finding for each that does not fit.

    A worker smaller than a node packs left to right; one of at least a node takes whole free nodes and then the exact
    remainder on the first node that has it (12 GPUs on 8-GPU nodes are 8 + 4). `spread` gives each small worker a node.
    Requests that name the same nodes (colocated prefill and decode) share the ledger.
    """
    ledger = GpuLedger(gpus_per_node)
    placed: list[Placed] = []
    problems: list[Diagnostic] = []
    for request in requests:
        cursor = request.first_node
        for index in range(request.workers):
            name = f"{request.role}-{index}"
            shares, cursor = _find(request, ledger, cursor)
            if shares is None:
                problems.append(_too_small(request, index, ledger, placed))
                break
            nodes = tuple(sorted(shares))
            placed.append(Placed(name, request.role, nodes, tuple(ledger.take(n, shares[n]) for n in nodes)))
    return placed, problems


def _find(request: Request, ledger: GpuLedger, cursor: int) -> tuple[dict[int, int] | None, int]:
    """GPUs a node for the next worker and the first node worth looking at for the one after it (keeps placement linear)."""
    last = request.first_node + request.nodes
    whole, remainder = divmod(request.gpus, ledger.gpus_per_node)
    while cursor < last and ledger.free(cursor) == 0:
        cursor += 1
    shares: dict[int, int] = {}
    node = cursor
    while whole and node < last:
        if ledger.free(node) == ledger.gpus_per_node:
            shares[node] = ledger.gpus_per_node
            whole -= 1
        node += 1
    if whole:
        return None, cursor
    if remainder:
        spot = next((n for n in range(cursor, last) if n not in shares and _fits(request, ledger, n, remainder)), None)
        if spot is None:
            return None, cursor
        shares[spot] = remainder
    return shares, cursor


def _fits(request: Request, ledger: GpuLedger, node: int, count: int) -> bool:
    if request.spread:
        return ledger.free(node) == ledger.gpus_per_node
    return ledger.free(node) >= count


def _too_small(request: Request, fitted: int, ledger: GpuLedger, placed: Sequence[Placed]) -> Diagnostic:
    needed, have = request.workers * request.gpus, request.nodes * ledger.gpus_per_node
    nodes = count(request.nodes, "node")
    message = (
        f"{count(request.workers, f'{request.role} worker')} of {count(request.gpus, 'GPU')} "
        f"do{'es' * (request.workers == 1)} not fit on {nodes} of {count(ledger.gpus_per_node, 'GPU')}: "
        f"{f'only {fitted} can be placed' if fitted else 'none can be placed'}"
    )
    if needed > have:
        enough = -(-needed // ledger.gpus_per_node)
        hint = f"they need {needed} GPUs, {nodes} have {have}: raise `roles.{request.role}.nodes` to {enough} or ask for fewer"
    elif request.spread:
        hint = f"`spread_workers` gives each worker a node of its own: raise `roles.{request.role}.nodes` to {request.workers}"
    elif others := _holders(request, placed):
        hint = f"{others}: raise `nodes`, or change `gpus`"
    else:
        hint = "what is left of the nodes does not fit one more: raise `nodes`, or choose `gpus` that divide a node"
    return Diagnostic("placement/oversubscribed", message, f"roles.{request.role}.workers", hint=hint)


def _holders(request: Request, placed: Sequence[Placed]) -> str:
    """Which workers of other roles hold GPUs of the request's nodes, and how many: `prefill-0 holds 2 GPUs of them`."""
    nodes = range(request.first_node, request.first_node + request.nodes)
    held = {
        worker.name: taken
        for worker in placed
        if worker.role != request.role
        and (taken := sum(len(gpus) for node, gpus in zip(worker.nodes, worker.gpus, strict=True) if node in nodes))
    }
    if not held:
        return ""
    return f"{name_list(tuple(held))} hold{'s' * (len(held) == 1)} {count(sum(held.values()), 'GPU')} of them"
