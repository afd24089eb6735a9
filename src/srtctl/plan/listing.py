"""A plan as plain lines under headings: what two plans are compared by."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from srtctl.plan.model import Check, Client, Plan, Service, Worker, node_address
from srtctl.plan.names import ranges, span
from srtctl.plan.shell import flag_groups, lines, option, word

#: (section, subject) to lines; the subject is what a section has one of each, "" where it is about the whole job.
Listing = dict[tuple[str, str], tuple[str, ...]]

OWN, LEADER = "@this-node", "@leader-node"  # words that need no quotes in a shell


def listing(plan: Plan) -> Listing:
    """Everything that decides what runs, so that equal listings mean the same deployment. Not in it: where the plan
    came from (`source`) and its warnings.

    Addresses that follow from the placement are named by role, and claims by what they are relative to their owner:
    a worker that moves is one line of `placement`, and the same change on many processes reads the same.
    """
    out: Listing = {
        ("job", ""): tuple(_job(plan)),
        ("slurm", ""): tuple(_slurm(plan)),
        ("environment", ""): tuple(_assignments(plan.environment)),
        ("placement", ""): tuple(_placement(w) for w in plan.workers),
    }
    out["containers", ""] = tuple(_containers(plan))
    clients = [plan.client] if plan.client else []
    placed: list[Worker | Service | Client] = [*plan.services, *plan.frontends, *plan.workers, *clients]
    out |= {("containers", item.name): entered for item in placed if (entered := tuple(_entered(item)))}
    out |= {("ports", owner): tuple(found) for owner, found in _ports(plan).items()}
    for worker in plan.workers:
        leader = node_address(worker.nodes[0])
        for process in worker.processes:
            argv = _argv(process.argv, leader, LEADER)
            out["commands", process.name] = (*argv, *_assignments(process.env, node_address(process.node)))
            if side := process.sidecar:
                env = _assignments(side.env, node_address(process.node))
                out["commands", f"{process.name} sidecar"] = (
                    f"mode {side.mode}",
                    *_argv(side.argv, leader, LEADER),
                    *env,
                )
    out |= {("services", s.name): tuple(_service(s)) for s in plan.services}
    out |= {("frontends", f.name): tuple(_service(f)) for f in plan.frontends}
    if plan.client:
        out["client", plan.client.name] = tuple(_client(plan.client))
    out |= {("files", name): tuple(text.splitlines()) for name, text in plan.files.items()}
    out |= {("checks", c.name): tuple(_check(c)) for c in plan.checks}
    return out


def _job(plan: Plan) -> Iterator[str]:
    yield f"name {plan.name}"
    yield f"nodes {plan.nodes}"
    yield f"GPUs a node: {plan.gpus_per_node}"
    yield f"model {plan.model.path} as {plan.model.served_name}"
    yield f"endpoint port {plan.endpoint.port} of node {plan.endpoint.node}" if plan.endpoint else "endpoint none"
    yield f"start-up limit {plan.health.startup} s"
    yield f"gate limit {plan.health.gate} s"
    yield f"python {plan.runtime.python}"
    yield f"interface {plan.runtime.network_interface or 'of the node address in Slurm'}"
    yield f"MPI by {plan.runtime.mpi}"
    for of, facts in sorted(plan.identity.items()):
        yield from (f"identity {of} {name} {value}" for name, value in sorted(facts.items()))


def _slurm(plan: Plan) -> Iterator[str]:
    slurm = plan.slurm
    for label, value in (("time limit", slurm.time_limit), ("account", slurm.account), ("partition", slurm.partition)):
        if value is not None:
            yield f"{label} {value}"
    if slurm.gpus_directive:
        yield "asks for GPUs"
    if slurm.exclusive:
        yield "exclusive nodes"
    if slurm.segment:
        yield "all nodes in one segment"
    for name, value in sorted(slurm.directives.items()):
        yield f"--{name}" if value is None else f"--{name}={value}"


def _placement(worker: Worker) -> str:
    places = [
        f"node {p.node} GPU{'s' * (len(p.gpus) > 1)} {ranges(p.gpus) or 'none'}"
        + (f" serving rank{'s' * (len(p.serves) > 1)} {ranges(p.serves)}" if p.serves else "")
        for p in worker.processes
    ]
    launched = {"node": "", "task": ", a task a process", "mpi": ", one MPI job"}[worker.launcher]
    return f"{worker.name}: {worker.engine} {worker.role}, DP{worker.dp_size}{launched}, {'; '.join(places)}"


def _containers(plan: Plan) -> Iterator[str]:
    yield f"entered by {plan.runtime.container}"
    yield from (f"mount {mount}" for mount in plan.runtime.mounts)


def _entered(item: Worker | Service | Client) -> Iterator[str]:
    """How its step enters a container, and what is done there first."""
    if item.image:
        yield f"image {item.image}"
    if isinstance(item, Worker):
        yield from (option(name, value) for name, value in sorted(item.srun_options.items()))
    if not isinstance(item, Client):
        yield from (f"set-up {' '.join(map(word, argv))}" for argv in item.setup)


def _ports(plan: Plan) -> dict[str, list[str]]:
    """Claims by owner, then what a process publishes and answers on; the node is left out where it is the owner's own."""
    home = {p.name: p.node for w in plan.workers for p in w.processes}
    home |= {s.name: s.node for s in (*plan.services, *plan.frontends)}
    found: dict[str, list[str]] = defaultdict(list)
    for claim in plan.claims:
        elsewhere = "" if home.get(claim.owner) == claim.node else f" on node {claim.node}"
        found[claim.owner].append(f"{claim.purpose} {span(claim)}{elsewhere}")
    for process in (p for w in plan.workers for p in w.processes):
        found[process.name] += [f"rank {p.dp_rank} publishes on {p.place}" for p in process.publishers]
        if process.ready_port is not None:
            found[process.name].append(f"ready when {process.ready_port} answers")
    return found


def _service(service: Service) -> Iterator[str]:
    yield f"node {service.node}"
    if service.port is not None:
        yield f"port {service.port}"
    if service.start == "after":
        yield "after the workers"
    address = node_address(service.node)
    yield from _argv(service.argv, address, OWN)
    yield from _assignments(service.env, address)


def _client(client: Client) -> Iterator[str]:
    yield f"node {client.node}"
    yield from _assignments(client.env, node_address(client.node))
    yield from client.script.splitlines()


def _check(check: Check) -> Iterator[str]:
    yield f"on failure: {check.on_failure}"
    yield f"timeout {'of the check' if check.timeout is None else f'{check.timeout:g} s'}"
    yield from (f"{name}: {value}" for name, value in sorted(check.settings.items()))
    ranks: dict[str, list[int]] = defaultdict(list)
    for target in check.targets:
        if target.dp_rank is None:
            yield target.worker or "the whole deployment"
        else:
            ranks[target.worker].append(target.dp_rank)
    yield from (f"{worker} rank{'s' * (len(r) > 1)} {ranges(r)}" for worker, r in ranks.items())


def _argv(argv: Sequence[str], address: str, name: str) -> list[str]:
    """One line a flag, `address` written as `name`."""
    return lines(flag_groups([item.replace(address, name) for item in argv]))


def _assignments(env: Mapping[str, str], own: str = "") -> list[str]:
    return [f"{name}={OWN if own and value == own else word(value)}" for name, value in sorted(env.items())]
