"""A plan for people: totals, node map, ports, commands, checks. Plain when piped, never clipped."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import groupby, zip_longest

from srtctl.plan.model import Check, Client, Plan, Service, Worker
from srtctl.plan.names import count, name_list, ranges
from srtctl.plan.paint import Paint
from srtctl.plan.shell import word
from srtctl.plan.textcommands import command_lines
from srtctl.plan.textports import port_lines


def plan_text(plan: Plan, *, color: bool = False) -> str:
    """The whole plan as text with a trailing newline."""
    paint = Paint(color)
    sections = (
        _head(plan, paint),
        _map(plan, paint),
        port_lines(plan, paint),
        command_lines(plan, paint),
        _checks(plan, paint),
    )
    return "\n\n".join("\n".join(section) for section in sections) + "\n"


def _head(plan: Plan, paint: Paint) -> Iterator[str]:
    used = sum(len(p.gpus) for w in plan.workers for p in w.processes)
    total = plan.nodes * plan.gpus_per_node
    size = f"{count(plan.nodes, 'node')} of {count(plan.gpus_per_node, 'GPU')}"
    yield paint("head", f"{plan.name}: {size}, {f'all {total:,}' if used == total else f'{used:,} of {total:,}'} used")
    yield f"model      {plan.model.path} as {plan.model.served_name}"
    for label, text in zip_longest(["workers"], _workers(plan), fillvalue=""):
        yield f"{label:<9}  {text}"
    slurm = [f"{k} {v}" for k, v in (("account", plan.slurm.account), ("partition", plan.slurm.partition)) if v]
    yield f"slurm      {', '.join([*slurm, 'time limit ' + (plan.slurm.time_limit or 'of the partition')])}"
    if plan.identity:
        yield f"identity   {', '.join(_identity(plan))}"
    yield from _containers(plan)
    if plan.endpoint:
        yield f"endpoint   http://<node {plan.endpoint.node}>:{plan.endpoint.port}/v1{_before(plan)}"


def _before(plan: Plan) -> str:
    """What clients talk to where that is not the frontend itself."""
    names = ", ".join(proxy.name for proxy in plan.proxies)
    return f", {names} before {count(len(plan.frontends), 'frontend')}" if names else ""


def _containers(plan: Plan) -> Iterator[str]:
    """The images and who runs in each, the mounts, and what is set up first."""
    prepared: list[Worker | Service] = [*plan.services, *plan.frontends, *plan.workers]
    placed: list[Worker | Service | Client] = [*prepared, *([plan.client] if plan.client else [])]
    for image in dict.fromkeys(item.image for item in placed if item.image):
        names = name_list(tuple(dict.fromkeys(_kind(item) for item in placed if item.image == image)))
        yield f"image      {image} ({plan.runtime.container}): {names}"
    if plan.runtime.mounts:
        yield f"mounts     {', '.join(plan.runtime.mounts)}"
    for argv in dict.fromkeys(argv for item in prepared for argv in item.setup):
        yield f"set-up     {' '.join(map(word, argv))}"


def _kind(item: Worker | Service | Client) -> str:
    """What to call it where its number does not matter."""
    return item.role if isinstance(item, Worker) else item.name.rstrip("0123456789").rstrip("-")


def _identity(plan: Plan) -> Iterator[str]:
    """`model org/name at 4f96cc5`, `image x:1`, `dynamo 1.6.1`."""
    model = plan.identity.get("model", {})
    if model:
        yield f"model {' at '.join(model[key] for key in ('repo', 'revision') if key in model)}"
    yield from (f"image {image}" for image in plan.identity.get("container", {}).values())
    yield from (f"{name} {version}" for name, version in sorted(plan.identity.get("frameworks", {}).items()))


def _workers(plan: Plan) -> list[str]:
    """`2 prefill on sglang, DP2, each 16 GPUs on 2 nodes`, a line for each kind."""
    kinds = Counter(
        (w.role, w.engine, w.dp_size, sum(len(p.gpus) for p in w.processes), len(set(w.nodes))) for w in plan.workers
    )
    return [
        f"{many:,} {role} on {engine}, DP{dp}, {'each ' if many > 1 else ''}{count(gpus, 'GPU')} on {count(nodes, 'node')}"
        for (role, engine, dp, gpus, nodes), many in kinds.items()
    ]


def _map(plan: Plan, paint: Paint) -> Iterator[str]:
    """One line a node: who has which GPUs, then what else runs there."""
    rows = _cells(plan)
    widths = [max(len(text) for text, _ in column) for column in zip_longest(*rows, fillvalue=("", ""))]
    beside = _beside(plan)
    yield paint("head", "node  GPUs")
    for node, row in enumerate(rows):
        padded = [
            paint(style, text) + " " * (width - len(text)) for (text, style), width in zip(row, widths, strict=False)
        ]
        filled = " │ ".join(padded) + " " * sum(width + 3 for width in widths[len(row) :])
        yield f"{node:4}  {filled}  {paint('dim', ', '.join(beside[node])) if beside[node] else ''}".rstrip()


def _cells(plan: Plan) -> list[list[tuple[str, str]]]:
    """For each node its GPUs in order: `0-3 prefill-0.0` or `4-7 free`, and the style."""
    owners: dict[int, dict[int, tuple[str, str]]] = defaultdict(dict)
    for worker in plan.workers:
        for process in worker.processes:
            owners[process.node] |= dict.fromkeys(process.gpus, (process.name, worker.role))
    free = ("free", "dim")
    out = []
    for node in range(plan.nodes):
        gpus = owners[node]
        runs = groupby(range(plan.gpus_per_node), lambda gpu, gpus=gpus: gpus.get(gpu, free))  # type: ignore[misc]
        out.append([(f"{ranges(run)} {name}", style) for (name, style), run in runs])
    return out


def _beside(plan: Plan) -> dict[int, list[str]]:
    """What runs on a node beside the engines: `8 serving sidecars`, `etcd`."""
    modes: dict[int, Counter[str]] = defaultdict(Counter)
    for process in (p for w in plan.workers for p in w.processes):
        if process.sidecar:
            modes[process.node][process.sidecar.mode] += 1
    beside: dict[int, list[str]] = defaultdict(list)
    for node, found in modes.items():
        beside[node] = [f"{mode} sidecar" if many == 1 else f"{many} {mode} sidecars" for mode, many in found.items()]
    for extra in (*plan.services, *plan.frontends):
        beside[extra.node].append(extra.name)
    if plan.client:
        beside[plan.client.node].append(plan.client.name)
    return beside


def _checks(plan: Plan, paint: Paint) -> Iterator[str]:
    yield paint("head", "checks after the launch")
    width = max((len(check.name) for check in plan.checks), default=0)
    for check in plan.checks:
        warn = ", a failure only warns" if check.on_failure == "warn" else ""
        yield f"{check.name:<{width}}  {_targets(check)}{warn}"
    if not plan.checks:
        yield "none"


def _targets(check: Check) -> str:
    """How many of what it verifies, and how often."""
    if not check.targets[0].worker:
        what = "the whole deployment"
    else:
        what = count(len(check.targets), "worker" if check.targets[0].dp_rank is None else "rank")
    return ", ".join([what, *(f"{name} {value}" for name, value in check.settings.items())])
