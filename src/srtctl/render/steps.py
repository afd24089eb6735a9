"""The lines of job.sbatch that start steps, in their order."""

from __future__ import annotations

from srtctl.plan.model import Plan, Service, Worker
from srtctl.plan.names import ranges
from srtctl.plan.shell import word
from srtctl.render.containers import Step


def probe(plan: Plan) -> list[Step]:
    """The line that asks the installed Dynamo what it can do, on the first node that runs a sidecar.

    What a set-up installs is not there yet.
    """
    comment = "the installed Dynamo has the modules and flags used below"
    for worker in plan.workers:
        for process in worker.processes if not worker.setup else ():
            if process.sidecar:
                program, *rest = process.sidecar.argv
                python = program if rest[:1] == ["-m"] else "python3"  # a sidecar of its own binary is no Python
                return [Step(f"probe_stack {process.node} {word(python)}", comment, worker)]
    return []


def steps(plan: Plan) -> list[Step]:
    """Services first, but for the one that clients talk to (nginx): it follows the frontends that it stands before."""
    steps = [_service_step(s) for s in plan.services if s.start == "before" and s not in plan.proxies]
    steps += [
        Step(f"frontend {f.name} {f.node} frontends/{f.name}.sh", f"ready: http {f.port}", f) for f in plan.frontends
    ]
    steps += [_service_step(s) for s in plan.proxies]
    steps += [Step(_worker_line(w, plan.runtime.mpi), _worker_comment(w), w) for w in plan.workers]
    return steps


def later(plan: Plan) -> list[Step]:
    """Services that start once every worker is registered."""
    return [_service_step(s) for s in plan.services if s.start == "after"]


def client(plan: Plan) -> list[Step]:
    """The client's step, where the recipe has one."""
    if plan.client is None:
        return []
    name = plan.client.name
    line = f"benchmark {name} {plan.client.node} client/{name}.sh"
    return [Step(line, "its end is the end of the job; the first failure ends it too", plan.client)]


def _service_step(service: Service) -> Step:
    line = f"service {service.name} {service.node} services/{service.name}.sh"
    ready = "not waited for" if service.port is None else f"ready: tcp {service.port}"
    return Step(line, ready, service)


def _worker_line(worker: Worker, mpi: str) -> str:
    where = f"{worker.name} {ranges(sorted(set(worker.nodes)))} workers/{worker.name}.sh"
    if worker.launcher == "node":
        return f"worker {where}"
    if worker.launcher == "task":
        return f"task_worker {where} {worker.nodes.count(worker.nodes[0])}"
    return f"mpi_worker {where} {','.join(str(len(process.gpus)) for process in worker.processes)} {word(mpi)}"


def _worker_comment(worker: Worker) -> str:
    if worker.launcher == "task":
        return f"a process for each of {worker.dp_size} ranks, leader on node {worker.nodes[0]}"
    words = []
    for process in worker.processes:
        what = "leader" if process.node_rank == 0 else "follower"
        if process.sidecar and process.node_rank:
            what = "telemetry follower"
        words.append(f"{what} on node {process.node}")
    shown = words if len(words) <= 4 else [*words[:2], f"… {len(words) - 2} more"]
    return ", ".join(shown)
