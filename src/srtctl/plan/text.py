"""A plan for people: node map, ports, commands, warnings. Plain when piped, never clipped."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterator

from srtctl.plan.model import Plan, Process

_COLORS = {"prefill": "36", "decode": "35", "agg": "32", "head": "1", "dim": "2"}


def plan_text(plan: Plan, *, color: bool = False) -> str:
    """The whole plan as text with a trailing newline."""
    paint = _Paint(color)
    sections = (
        _head(plan, paint),
        _map(plan, paint),
        _ports(plan, paint),
        _commands(plan, paint),
        _checks(plan, paint),
    )
    return "\n\n".join("\n".join(section) for section in sections) + "\n"


class _Paint:
    def __init__(self, color: bool) -> None:
        self._color = color

    def __call__(self, style: str, text: str) -> str:
        return f"\x1b[{_COLORS[style]}m{text}\x1b[0m" if self._color else text


def _head(plan: Plan, paint: _Paint) -> Iterator[str]:
    gpus = sum(len(p.gpus) for w in plan.workers for p in w.processes)
    yield paint(
        "head", f"{plan.name}: {_count(plan.nodes, 'node')} of {_count(plan.gpus_per_node, 'GPU')}, {gpus} GPUs used"
    )
    yield f"model      {plan.model.path} as {plan.model.served_name}"
    slurm = [f"{k} {v}" for k, v in (("account", plan.slurm.account), ("partition", plan.slurm.partition)) if v]
    yield f"slurm      {', '.join([*slurm, 'time limit ' + (plan.slurm.time_limit or 'of the partition')])}"
    for frontend in plan.frontends:
        yield f"endpoint   http://<node {frontend.node}>:{frontend.port}/v1"


def _map(plan: Plan, paint: _Paint) -> Iterator[str]:
    """One line a node: the owner of every GPU, then what else runs there."""
    owners: dict[int, dict[int, tuple[str, str]]] = defaultdict(dict)
    beside: dict[int, list[str]] = defaultdict(list)
    for worker in plan.workers:
        for process in worker.processes:
            owners[process.node] |= dict.fromkeys(process.gpus, (process.name, worker.role))
            if process.sidecar:
                beside[process.node].append(f"{process.sidecar.mode} sidecar of {process.name}")
    for extra in (*plan.services, *plan.frontends):
        beside[extra.node].append(extra.name)
    width = max([len(name) for gpus in owners.values() for name, _ in gpus.values()] + [1])
    yield paint("head", "node  GPUs")
    for node in range(plan.nodes):
        cells = []
        for gpu in range(plan.gpus_per_node):
            name, role = owners[node].get(gpu, ("-", ""))
            cells.append(paint(role, name.ljust(width)) if role else paint("dim", name.ljust(width)))
        yield f"{node:4}  {' '.join(cells)}  {paint('dim', ', '.join(beside[node]))}".rstrip()


def _ports(plan: Plan, paint: _Paint) -> Iterator[str]:
    yield paint("head", "node  ports        purpose      owner")
    for claim in plan.claims:
        last = claim.first + claim.count - 1
        ports = str(claim.first) if claim.count == 1 else f"{claim.first}-{last}"
        yield f"{claim.node:4}  {ports:<11}  {claim.purpose:<11}  {claim.owner}"


def _commands(plan: Plan, paint: _Paint) -> Iterator[str]:
    yield paint("head", "commands")
    for extra in (*plan.services, *plan.frontends):
        yield f"# {extra.name} on node {extra.node}"
        yield _shell(extra.argv)
    for worker in plan.workers:
        for process in worker.processes:
            yield f"# {process.name} on node {process.node}{_published(process)}"
            yield f"{_environment(process)}{_shell(process.argv)}"
            if process.sidecar:
                yield f"# {process.sidecar.mode} sidecar of {process.name}"
                yield _shell(process.sidecar.argv)


def _checks(plan: Plan, paint: _Paint) -> Iterator[str]:
    yield paint("head", "checks after the launch")
    for check in plan.checks:
        warn = ", a failure only warns" if check.on_failure == "warn" else ""
        yield f"{check.name}: {_count(len(check.targets), 'rank target')}{warn}"
    if not plan.checks:
        yield "none"


def _published(process: Process) -> str:
    words = ", ".join(f"rank {p.dp_rank} on {p.port}" for p in process.publishers)
    return f", publishes {words}" if words else ""


def _environment(process: Process) -> str:
    return "".join(f"{k}={shlex.quote(v)} " for k, v in sorted(process.env.items()))


def _shell(argv: tuple[str, ...]) -> str:
    # Addresses stay readable and usable: they are set to real ones before a command is copied.
    return " ".join(a if "${NODE_ADDR[" in a and " " not in a else shlex.quote(a) for a in argv)


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}{'s' * (n != 1)}"
