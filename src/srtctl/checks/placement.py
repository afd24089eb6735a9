"""Check `placement`: what really runs where is what the plan says: nodes, processes, GPUs, listening ports.

It compares the plan with what each node saw of itself (`survey`). The KV publishers' sockets are left to `publishers`,
which connects to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from srtctl.checks import survey
from srtctl.checks.context import Context
from srtctl.checks.deployment import Deployment, Process, Worker
from srtctl.checks.model import FAIL, PASS, SKIP, Outcome, Target, TargetResult
from srtctl.checks.survey import NodeView


def run(context: Context, targets: Sequence[Target]) -> Outcome:
    """One look at the survey; every target is skipped where no node left one."""
    deployment = context.deployment
    views = {node: survey.read(deployment.run_dir, node) for node in deployment.nodes}
    seen = {node: view for node, view in views.items() if view is not None}
    if not seen:
        return Outcome(
            tuple(TargetResult(target, SKIP, "no node surveyed itself; see logs/survey.log") for target in targets)
        )
    return evaluate(deployment, targets, seen)


def evaluate(deployment: Deployment, targets: Sequence[Target], views: Mapping[int, NodeView]) -> Outcome:
    """The survey compared with the plan, a result for each target (a worker)."""
    wrong = [complaint for single in deployment.singles for complaint in _process(deployment, single, views)]
    return Outcome(
        tuple(_worker(deployment, deployment.worker(target.worker), target, views) for target in targets),
        "; ".join(wrong),
    )


def _worker(deployment: Deployment, worker: Worker, target: Target, views: Mapping[int, NodeView]) -> TargetResult:
    complaints = [words for process in worker.processes for words in _process(deployment, process, views)]
    evidence = {process.name: _evidence(deployment, process, views.get(process.node)) for process in worker.processes}
    if complaints:
        return TargetResult(target, FAIL, f"{target}: {'; '.join(complaints)}", evidence)
    return TargetResult(target, PASS, "it runs on the nodes, GPUs and ports of the plan", evidence)


def _process(deployment: Deployment, process: Process, views: Mapping[int, NodeView]) -> Iterator[str]:
    node, view = deployment.nodes[process.node], views.get(process.node)
    if view is None:
        yield f"{node.name} did not survey itself (logs/survey.log), so nothing is known of {process.name}"
        return
    if view.name != node.name:
        yield f"plan node {process.node} is {view.name}, state/nodes.tsv says {node.name}"
    for part in process.parts:
        label = f"{process.name} {part}"
        if (process.name, part) not in view.processes:
            yield f"{label} does not run on {node.name}{_elsewhere(process, part, views)}"
        elif part == "engine" and process.visible and view.processes[process.name, part] != process.visible:
            found = view.processes[process.name, part] or "none set"
            yield f"{label} on {node.name} has GPUs {found}, the plan gives it {process.visible}"
    for purpose, port in sorted(process.listens.items()):
        if port not in view.listening:
            yield f"nothing listens on port {port} ({purpose} of {process.name}) on {node.name}"


def _elsewhere(process: Process, part: str, views: Mapping[int, NodeView]) -> str:
    found = [view.name for view in views.values() if (process.name, part) in view.processes]
    return f" but on {' and '.join(found)}" if found else ""


def _evidence(deployment: Deployment, process: Process, view: NodeView | None) -> dict[str, object]:
    seen = view or NodeView()
    return {
        "node": deployment.nodes[process.node].name,
        "running": [part for part in process.parts if (process.name, part) in seen.processes],
        "gpus": seen.processes.get((process.name, "engine")),
        "listening": {purpose: port for purpose, port in process.listens.items() if port in seen.listening},
    }
