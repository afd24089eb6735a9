"""The generated scripts, one function each. Pure text; what a reviewer reads is decided here and in templates/."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

from srtctl import __version__
from srtctl.plan.model import Plan, Process, Service, Worker, node_address
from srtctl.plan.names import ranges
from srtctl.plan.shell import assignment, common_items, common_prefix, flag_groups, lines, word

if TYPE_CHECKING:
    from jinja2 import Environment

_COMMENT_COLUMN = 52


@dataclass(frozen=True, slots=True)
class Array:
    """A bash array: its name and its lines."""

    name: str
    lines: list[str]


@dataclass(frozen=True, slots=True)
class Step:
    line: str
    comment: str


def job_script(plan: Plan, run_dir: str) -> str:
    """job.sbatch. The only file that knows where the bundle lies."""
    return _render(
        "job.sbatch.j2",
        plan=plan,
        version=__version__,
        run_dir_word=word(run_dir),
        directives=directives(plan, run_dir),
        environment=[f"{name}={word(value)}" for name, value in sorted(plan.environment.items())],
        interface=plan.runtime.network_interface or "",
        probe=_probe(plan),
        steps=_steps(plan),
        expectations=_expectations(plan),
        gate=" ".join(
            ["gate", _address(plan), str(plan.health.gate), *([word(plan.runtime.python)] if plan.checks else [])]
        ),
        python=word(plan.runtime.python),
        pad_after=lambda text: " " * max(_COMMENT_COLUMN - len(text), 0),
    )


def directives(plan: Plan, run_dir: str) -> list[str]:
    """The #SBATCH lines, in a fixed order; directives of recipe and profile win over ours."""
    slurm = plan.slurm
    ours: dict[str, str | None] = {"job-name": plan.name}
    if slurm.account:
        ours["account"] = slurm.account
    if slurm.partition:
        ours["partition"] = slurm.partition
    ours |= {"nodes": str(plan.nodes), "ntasks-per-node": "1"}
    if slurm.gpus_directive:
        ours["gpus-per-node"] = str(plan.gpus_per_node)
    if slurm.exclusive:
        ours["exclusive"] = None
    ours["mem"] = "0"  # --exclusive alone gives only the default memory
    if slurm.time_limit:
        ours["time"] = slurm.time_limit
    # A requeued job would run half of a deployment's history again; USR1 leaves time to stop before the limit.
    ours |= {"no-requeue": None, "signal": "B:USR1@90", "output": f"{run_dir}/logs/job.%j.log"}
    merged = ours | dict(sorted(slurm.directives.items()))
    return [f"--{name}" if value is None else f"--{name}={_directive_value(value)}" for name, value in merged.items()]


def _directive_value(value: str) -> str:
    """sbatch splits its lines at blanks, and reads double quotes."""
    return f'"{value}"' if any(c.isspace() for c in value) else value


def worker_script(worker: Worker) -> str:
    """workers/<name>.sh: what all nodes share first, then one branch a node."""
    argv = [flag_groups(p.argv) for p in worker.processes]
    shared_argv = common_prefix(argv)
    sidecars = [p.sidecar for p in worker.processes if p.sidecar]
    side_argv = [flag_groups(s.argv) for s in sidecars]
    shared_side = common_prefix(side_argv) if sidecars else 0
    env, side_env = common_items([p.env for p in worker.processes]), common_items([s.env for s in sidecars])
    shared = [Array("engine", lines(argv[0][:shared_argv])), Array("engine_env", _assignments(env))]
    if sidecars:
        shared += [Array("sidecar", lines(side_argv[0][:shared_side])), Array("sidecar_env", _assignments(side_env))]
    nodes = []
    for process, groups in zip(worker.processes, argv, strict=True):
        arrays = [Array("engine", lines(groups[shared_argv:])), Array("engine_env", _assignments(process.env, env))]
        if process.sidecar:
            arrays += [
                Array("sidecar", lines(flag_groups(process.sidecar.argv)[shared_side:])),
                Array("sidecar_env", _assignments(process.sidecar.env, side_env)),
            ]
        nodes.append(
            {
                "index": process.node,
                "comment": _process_comment(process),
                "arrays": [a for a in arrays if a.lines],
                "process": process.name,
                "ready": f"127.0.0.1:{process.ready_port}" if process.ready_port else "-",
                "parts": "engine sidecar" if process.sidecar else "engine",
            }
        )
    title = f"{worker.name}: {worker.engine}, {worker.role}, DP{worker.dp_size}, {_nodes_text(worker.nodes)}"
    return _render(
        "worker.sh.j2",
        title=title,
        shared=[a for a in shared if a.lines or a.name.endswith("env")],
        nodes=nodes,
        supervise="supervise" if worker.launcher == "node" else "supervise_rank",
    )


def single_script(service: Service, part: str, title: str) -> str:
    """services/<name>.sh and frontends/<name>.sh: one process on one node."""
    arrays = [Array(part, lines(flag_groups(service.argv))), Array(f"{part}_env", _assignments(service.env))]
    return _render(
        "single.sh.j2",
        title=title,
        arrays=arrays,
        process=service.name,
        ready=word(f"{node_address(service.node)}:{service.port}"),
        part=part,
    )


def _address(plan: Plan) -> str:
    return word(f"{node_address(plan.endpoint.node)}:{plan.endpoint.port}") if plan.endpoint else "-"


def _probe(plan: Plan) -> str:
    """The line that asks the installed Dynamo what it can do, on the first node that runs a sidecar; else nothing."""
    sidecars = [(p.node, p.sidecar) for w in plan.workers for p in w.processes if p.sidecar]
    return f"probe_stack {sidecars[0][0]} {word(sidecars[0][1].argv[0])}" if sidecars else ""


def _steps(plan: Plan) -> list[Step]:
    steps = [Step(f"service {s.name} {s.node} services/{s.name}.sh", f"ready: tcp {s.port}") for s in plan.services]
    steps += [
        Step(f"frontend {f.name} {f.node} frontends/{f.name}.sh", f"ready: http {f.port}") for f in plan.frontends
    ]
    steps += [Step(_worker_line(w, plan.runtime.mpi), _worker_comment(w)) for w in plan.workers]
    return steps


def _worker_line(worker: Worker, mpi: str) -> str:
    where = f"{worker.name} {ranges(worker.nodes)} workers/{worker.name}.sh"
    if worker.launcher == "node":
        return f"worker {where}"
    return f"mpi_worker {where} {','.join(str(len(process.gpus)) for process in worker.processes)} {word(mpi)}"


def _expectations(plan: Plan) -> list[str]:
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


def _worker_comment(worker: Worker) -> str:
    words = []
    for process in worker.processes:
        what = "leader" if process.node_rank == 0 else "follower"
        if process.sidecar and process.node_rank:
            what = "telemetry follower"
        words.append(f"{what} on node {process.node}")
    shown = words if len(words) <= 4 else [*words[:2], f"… {len(words) - 2} more"]
    return ", ".join(shown)


def _process_comment(process: Process) -> str:
    if process.node_rank == 0:
        what = "leader: serves" if process.sidecar else "leader"
    elif process.sidecar:
        what = "follower: its sidecar relays under the leader's identity"
    else:
        what = "follower: engine only"
    published = ", ".join(f"rank {p.dp_rank} on {p.port}" for p in process.publishers)
    return f"{what}; publishes {published}" if published else what


def _nodes_text(nodes: Sequence[int]) -> str:
    return f"node {nodes[0]}" if len(nodes) == 1 else f"nodes {ranges(nodes)}"


def _assignments(env: Mapping[str, str], without: Mapping[str, str] | None = None) -> list[str]:
    return [assignment(k, v) for k, v in sorted(env.items()) if k not in (without or {})]


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("srtctl.render"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def _render(template: str, **values: object) -> str:
    return _environment().get_template(template).render(**values)
