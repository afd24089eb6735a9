"""What every plan keeps to. The builder guarantees it; a plan that was saved and edited is checked against it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from srtctl.diagnostics import Diagnostic
from srtctl.plan.model import Claim, Plan

#: Names become file names in the run directory.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def problems(plan: Plan) -> list[Diagnostic]:
    """Where the plan contradicts itself: `path` names the value, the message continues it; empty for a sound plan."""
    return [
        Diagnostic("plan/integrity", message, path)
        for rule in (_names, _nodes, _workers, _gpus, _claims, _ports, _checks)
        for path, message in rule(plan)
    ]


def _names(plan: Plan) -> Iterator[tuple[str, str]]:
    named = [(f"workers.{i}", w.name) for i, w in enumerate(plan.workers)]
    named += [(f"services.{i}", s.name) for i, s in enumerate(plan.services)]
    named += [(f"frontends.{i}", f.name) for i, f in enumerate(plan.frontends)]
    named += [("client", plan.client.name)] if plan.client else []
    named += [
        (f"workers.{i}.processes.{k}", p.name) for i, w in enumerate(plan.workers) for k, p in enumerate(w.processes)
    ]
    uses = Counter(name for _, name in named)
    for path, name in [("", plan.name), *named]:
        where = f"{path}.name" if path else "name"
        if not NAME.fullmatch(name):
            yield where, f"is {name!r}, which is no plain file name"
        elif uses[name] > 1:
            yield where, f"is {name!r}, which something else is called too"


def _nodes(plan: Plan) -> Iterator[tuple[str, str]]:
    placed = [
        (f"workers.{i}.processes.{k}", p.node) for i, w in enumerate(plan.workers) for k, p in enumerate(w.processes)
    ]
    placed += [(f"services.{i}", s.node) for i, s in enumerate(plan.services)]
    placed += [(f"frontends.{i}", f.node) for i, f in enumerate(plan.frontends)]
    placed += [("client", plan.client.node)] if plan.client else []
    placed += [(f"claims.{i}", c.node) for i, c in enumerate(plan.claims)]
    placed += [("endpoint", plan.endpoint.node)] if plan.endpoint else []
    for path, node in placed:
        if not 0 <= node < plan.nodes:
            yield f"{path}.node", f"is {node}, but the plan has nodes 0 to {plan.nodes - 1}"


def _workers(plan: Plan) -> Iterator[tuple[str, str]]:
    for index, worker in enumerate(plan.workers):
        if not worker.processes:
            yield f"workers.{index}.processes", "is empty"
        if worker.nodes != tuple(p.node for p in worker.processes):
            yield (
                f"workers.{index}.nodes",
                f"is {list(worker.nodes)}, which are not the nodes of its processes in order",
            )
        served = sorted(rank for process in worker.processes for rank in process.serves)
        if worker.processes and served != list(range(worker.dp_size)):
            yield f"workers.{index}.processes", f"serve ranks {served}, not each of {worker.dp_size} once"
        for rank, process in enumerate(worker.processes):
            where = f"workers.{index}.processes.{rank}"
            if process.node_rank != rank:
                yield f"{where}.node_rank", f"is {process.node_rank}, but the process is number {rank} of its worker"
            if process.name != f"{worker.name}.{rank}":
                yield f"{where}.name", f"is {process.name!r}, not `{worker.name}.{rank}`"


def _gpus(plan: Plan) -> Iterator[tuple[str, str]]:
    owners: dict[tuple[int, int], str] = {}
    for index, worker in enumerate(plan.workers):
        for rank, process in enumerate(worker.processes):
            where = f"workers.{index}.processes.{rank}.gpus"
            for gpu in process.gpus:
                if not 0 <= gpu < plan.gpus_per_node:
                    yield where, f"holds {gpu}, but a node has GPUs 0 to {plan.gpus_per_node - 1}"
                owner = owners.setdefault((process.node, gpu), process.name)
                if owner != process.name:
                    yield where, f"holds GPU {gpu} of node {process.node}, which {owner} has"


def _claims(plan: Plan) -> Iterator[tuple[str, str]]:
    for index, claim in enumerate(plan.claims):
        if claim.count < 1 or not 0 < claim.first <= claim.first + claim.count - 1 <= 65535:
            yield f"claims.{index}", f"is no interval of ports: {claim.count} from {claim.first}"
    for (_, before), (index, claim) in pairwise(sorted(enumerate(plan.claims), key=lambda c: c[1])):
        if claim.node == before.node and claim.first < before.first + before.count:
            yield f"claims.{index}", f"({_owned(claim)}) overlaps that of {_owned(before)} on node {claim.node}"


def _ports(plan: Plan) -> Iterator[tuple[str, str]]:
    claimed = {(c.node, port) for c in plan.claims for port in range(c.first, c.first + c.count)}
    singles = [(f"services.{i}", s) for i, s in enumerate(plan.services)]
    singles += [(f"frontends.{i}", f) for i, f in enumerate(plan.frontends)]
    used = [(where, single.node, single.port) for where, single in singles if single.port is not None]
    used += [("endpoint", plan.endpoint.node, plan.endpoint.port)] if plan.endpoint else []
    for index, worker in enumerate(plan.workers):
        for rank, process in enumerate(worker.processes):
            where = f"workers.{index}.processes.{rank}"
            used += [
                (f"{where}.publishers.{i}", process.node, p.port) for i, p in enumerate(process.publishers) if p.port
            ]
            if process.ready_port is not None and (process.node, process.ready_port) not in claimed:
                yield f"{where}.ready_port", f"is {process.ready_port}, which nothing claims on node {process.node}"
    for path, node, port in used:
        if (node, port) not in claimed:
            yield f"{path}.port", f"is {port}, which nothing claims on node {node}"


def _checks(plan: Plan) -> Iterator[tuple[str, str]]:
    sizes = {w.name: w.dp_size for w in plan.workers}
    for index, check in enumerate(plan.checks):
        for number, target in enumerate(check.targets):
            if target.dp_rank is None:
                what, known = target.worker, not target.worker or target.worker in sizes
            else:
                what = f"rank {target.dp_rank} of {target.worker}"
                known = 0 <= target.dp_rank < sizes.get(target.worker, 0)
            if not known:
                yield f"checks.{index}.targets.{number}", f"is {what}, which the plan has not"


def _owned(claim: Claim) -> str:
    return f"{claim.purpose} of {claim.owner}"
