"""The generated scripts, one function each. Pure text; what a reviewer reads is decided here and in templates/."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from srtctl import __version__
from srtctl.plan.model import Client, Plan, Process, Service, Worker, node_address
from srtctl.plan.names import ranges
from srtctl.plan.shell import assignment, common_items, common_prefix, flag_groups, lines, word
from srtctl.render import steps
from srtctl.render.containers import introduction, settings
from srtctl.render.gate import expectations, gate, reaches

if TYPE_CHECKING:
    from jinja2 import Environment

_COMMENT_COLUMN = 52
#: File in the bundle's `client` folder: what the client runs.
COMMAND = "command.sh"


@dataclass(frozen=True, slots=True)
class Array:
    """A bash array: its name and its lines."""

    name: str
    lines: list[str]


def job_script(plan: Plan, run_dir: str) -> str:
    """job.sbatch. The only file that knows where the bundle lies."""
    containers, mounts = introduction(plan)
    parts = [part(plan) for part in (steps.probe, steps.steps, steps.later, steps.client)]
    settled = settings(plan, [step for part in parts for step in part])
    first, starts, later, client = ([next(settled) for _ in part] for part in parts)
    return _render(
        "job.sbatch.j2",
        plan=plan,
        version=__version__,
        run_dir_word=word(run_dir),
        directives=directives(plan, run_dir),
        environment=[f"{name}={word(value)}" for name, value in sorted(plan.environment.items())],
        interface=plan.runtime.network_interface or "",
        containers=containers,
        mounts=mounts,
        blocks=[first, starts],
        later=later,
        client=client,
        expectations=expectations(plan),
        reaches=reaches(plan),
        gate=gate(plan),
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
    if slurm.segment:
        ours["segment"] = str(plan.nodes)
    ours["mem"] = "0"  # --exclusive alone gives only the default memory
    if slurm.time_limit:
        ours["time"] = slurm.time_limit
    # A requeued job would run half of a deployment's history again; USR1 leaves time to stop before the limit.
    ours |= {"no-requeue": None, "signal": "B:USR1@90", "output": f"{run_dir.replace('%', '%%')}/logs/job.%j.log"}
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
    shared = _setup(worker.setup)
    shared += [Array("engine", lines(argv[0][:shared_argv])), Array("engine_env", _assignments(env))]
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
                "index": _selected(worker, process),
                "comment": _process_comment(process),
                "arrays": [a for a in arrays if a.lines],
                "process": process.name,
                "ready": _ready(process),
                "parts": "engine sidecar" if process.sidecar else "engine",
            }
        )
    title = (
        f"{worker.name}: {worker.engine}, {worker.role}, DP{worker.dp_size}, {_nodes_text(sorted(set(worker.nodes)))}"
    )
    return _render(
        "worker.sh.j2",
        title=title,
        shared=[a for a in shared if a.lines or a.name.endswith("env")],
        nodes=nodes,
        selector="$NODE_INDEX.$RANK_HERE" if worker.launcher == "task" else "$NODE_INDEX",
        supervise={"node": "supervise", "task": "supervise_task", "mpi": "supervise_rank"}[worker.launcher],
    )


def _selected(worker: Worker, process: Process) -> str:
    """The pattern by which a task of the worker's step finds its process."""
    if worker.launcher != "task":
        return str(process.node)
    return f"{process.node}.{worker.nodes[: process.node_rank].count(process.node)}"


def single_script(service: Service, part: str, title: str) -> str:
    """services/<name>.sh and frontends/<name>.sh: one process on one node."""
    arrays = _setup(service.setup)
    arrays += [Array(part, lines(flag_groups(service.argv))), Array(f"{part}_env", _assignments(service.env))]
    return _render(
        "single.sh.j2",
        title=title,
        arrays=arrays,
        process=service.name,
        ready="-" if service.port is None else word(f"{node_address(service.node)}:{service.port}"),
        part=part,
    )


def client_script(client: Client) -> str:
    """client/<name>.sh: the step of the client, which runs client/command.sh."""
    return _render(
        "client.sh.j2",
        title=f"{client.name} on node {client.node}: runs {COMMAND} beside this file, as the recipe says",
        command=word(f"${{RUN_DIR}}/client/{COMMAND}"),
        environment=_assignments(client.env),
        process=client.name,
    )


def client_command(client: Client) -> str:
    """client/command.sh: what the client runs. What somebody wrote into a recipe is not ours to check."""
    return f"#!/bin/bash\n# shellcheck disable=all\n{client.script}"


def _setup(commands: Sequence[Sequence[str]]) -> list[Array]:
    """An array a command, and `setup`, which names them in their order."""
    named = [Array(f"setup_{number}", lines(flag_groups(command))) for number, command in enumerate(commands, 1)]
    return [*named, Array("setup", [" ".join(a.name for a in named)])] if named else []


def _ready(process: Process) -> str:
    """Where the process is asked whether it is up. Dynamo's status server listens on the node's own address alone."""
    if process.ready_port is None:
        return "-"
    status_server = process.env.get("DYN_SYSTEM_PORT") == str(process.ready_port)
    return word(f"{node_address(process.node) if status_server else '127.0.0.1'}:{process.ready_port}")


def _process_comment(process: Process) -> str:
    if process.node_rank == 0:
        what = "leader: serves" if process.sidecar else "leader"
    elif process.sidecar:
        what = "follower: its sidecar relays under the leader's identity"
    else:
        what = "serves its own ranks" if process.serves else "follower: engine only"
    published = ", ".join(f"rank {p.dp_rank} on {p.place}" for p in process.publishers)
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
