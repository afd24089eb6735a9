"""Ports: one table of families and one ledger of intervals. Nobody derives a port from another port."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from srtctl.diagnostics import Diagnostic, Related
from srtctl.plan.model import Claim

MAX_PORT = 65535
I16_MAX = 32767
#: Where the ledger looks instead for a family whose base lies in the ephemeral range (on some nodes that starts at 9000).
LOW_BASE = 3000


@dataclass(frozen=True, slots=True)
class Family:
    """Where the ledger starts looking for a purpose, the highest port it may use, and what binds it."""

    base: int
    what: str
    limit: int = MAX_PORT


FAMILIES: dict[str, Family] = {
    "etcd_client": Family(2379, "etcd, clients"),
    "etcd_peer": Family(2380, "etcd, peers"),
    "nats": Family(4222, "NATS, clients"),
    "kv_events": Family(5200, "KV publishers of an engine: base + global DP rank"),
    "nixl": Family(5600, "NIXL handshakes of vLLM: base + what the rank adds"),
    "http": Family(6100, "an engine's HTTP server"),
    "service": Family(7000, "an extra service of the recipe"),
    "system": Family(7500, "a sidecar's status server (DYN_SYSTEM_PORT is a signed 16-bit number)", I16_MAX),
    "frontend": Family(8000, "the frontend that clients talk to"),
    "nginx": Family(8000, "nginx, which clients talk to where there are several frontends"),
    "behind_nginx": Family(8080, "a frontend behind nginx"),
    "dist_init": Family(8300, "rendezvous of a worker's nodes, and what SGLang binds above it"),
    "bootstrap": Family(8998, "prefill bootstrap server of SGLang, of vLLM's Mooncake connector"),
    "grpc": Family(9100, "an engine's native gRPC server"),
    "dp_rpc": Family(13345, "rendezvous of vLLM's data-parallel nodes"),
    "nccl": Family(17500, "an engine's NCCL rendezvous"),
    "master": Family(29500, "rendezvous of a worker's nodes in torch.distributed"),
}


@dataclass(slots=True)
class Ledger:
    """Claims per host. Where nodes share one host (loopback sandbox), all nodes share one port space.

    `offset` is added to every family's base: two jobs with different offsets can share nodes.
    """

    ephemeral_floor: int
    nodes_share_host: bool = False
    offset: int = 0
    _by_host: dict[int, list[Claim]] = field(default_factory=dict)
    _next: dict[tuple[int, str], int] = field(default_factory=dict)
    _claims: list[Claim] = field(default_factory=list)
    _written: dict[Claim, str] = field(default_factory=dict)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """All claims, sorted by node and port."""
        return tuple(sorted(self._claims, key=attrgetter("node", "first")))  # disjoint on a node, so no ties

    def reserve(
        self, nodes: Sequence[int], purpose: str, owner: str, first: int, count: int = 1, path: str = ""
    ) -> list[Diagnostic]:
        """Claim a port that the user wrote at recipe path `path`, on each of `nodes`.

        The finding of a conflict names both owners, and both paths where two places of the recipe contradict.
        """
        problems = [replace(d, path=path) for d in self._limits(purpose, owner, first, count)]
        hosts_done: set[int] = set()
        for node in dict.fromkeys(nodes):
            claim = Claim(node, first, count, purpose, owner)
            if self._host(node) in hosts_done:
                self._claims += [] if problems else [claim]
                continue
            hosts_done.add(self._host(node))
            other = self._overlap(self._host(node), first, count)
            if other is not None:
                problems.append(self._conflict(claim, other, path))
            elif not problems:
                self._add(claim)
                self._written[claim] = path
        return problems

    def _conflict(self, claim: Claim, other: Claim, path: str) -> Diagnostic:
        said = f"{_span(other.first, other.count)} ({other.purpose} of {other.owner})"
        there = self._written.get(other, "")
        return Diagnostic(
            "ports/conflict",
            f"{_span(claim.first, claim.count)} ({claim.purpose} of {claim.owner}) on node {claim.node} overlaps {said}",
            path,
            hint="leave the port out, so that srtctl chooses, or spread the workers over nodes",
            related=(Related(f"{said} is set here", there),) if there and there != path else (),
        )

    def claim(self, nodes: Sequence[int], purpose: str, owner: str, count: int = 1) -> tuple[int, list[Diagnostic]]:
        """The first port of a free interval of `count` ports, the same on each of `nodes`, from the family's base upwards."""
        family = FAMILIES[purpose]
        hosts = sorted({self._host(n) for n in nodes})
        top = min(family.limit, self.ephemeral_floor - 1)
        base = (family.base if family.base + self.offset <= top else LOW_BASE) + self.offset
        first = max(self._next.get((h, purpose), base) for h in hosts)
        while True:
            blockers = [c.first + c.count for h in hosts if (c := self._overlap(h, first, count))]
            if not blockers:
                break
            first = max(blockers)
        if first + count - 1 > top:
            return first, [
                Diagnostic(
                    "ports/exhausted",
                    f"no {count} free port{'s' * (count != 1)} left for {purpose} of {owner} on node {nodes[0]} "
                    f"between {base} and {top}",
                    hint="place fewer workers on a node, or raise `ephemeral_port_floor` in the cluster profile if the nodes allow it",
                )
            ]
        done: set[int] = set()
        for node in dict.fromkeys(nodes):
            claim = Claim(node, first, count, purpose, owner)
            if self._host(node) not in done:
                done.add(self._host(node))
                self._add(claim)
                self._next[self._host(node), purpose] = first + count
            else:  # the same interval of the same host, under the name of each of its nodes
                self._claims.append(claim)
        return first, []

    def _host(self, node: int) -> int:
        return 0 if self.nodes_share_host else node

    def _add(self, claim: Claim) -> None:
        self._claims.append(claim)
        insort(self._by_host.setdefault(self._host(claim.node), []), claim, key=lambda c: c.first)

    def _overlap(self, host: int, first: int, count: int) -> Claim | None:
        claims = self._by_host.get(host, [])
        at = bisect_left(claims, first + count, key=lambda c: c.first)
        # Claims on a host are disjoint, so only the nearest one below can reach into the interval.
        if at and claims[at - 1].first + claims[at - 1].count > first:
            return claims[at - 1]
        return None

    def _limits(self, purpose: str, owner: str, first: int, count: int) -> list[Diagnostic]:
        last, limit = first + count - 1, FAMILIES[purpose].limit
        if last > limit:
            return [
                Diagnostic(
                    "ports/limit",
                    f"{_span(first, count)} ({purpose} of {owner}) is above {limit}, the highest that {FAMILIES[purpose].what} accepts",
                    hint=f"use a port up to {limit - count + 1}",
                )
            ]
        if last >= self.ephemeral_floor:
            return [
                Diagnostic(
                    "ports/ephemeral",
                    f"{_span(first, count)} ({purpose} of {owner}) lies in the ephemeral range, from {self.ephemeral_floor} up: "
                    "any outgoing connection may take it",
                    hint=f"use a port below {self.ephemeral_floor}, or leave it out so that srtctl chooses",
                )
            ]
        return []


def _span(first: int, count: int) -> str:
    return f"port {first}" if count == 1 else f"ports {first}-{first + count - 1}"
