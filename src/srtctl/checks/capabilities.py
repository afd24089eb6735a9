"""Check `capabilities`: an engine that speaks OpenEngine can do what the plan uses it for.

It asks each engine process that serves, before anything is asked of Dynamo: schema revision, role, model name, the KV
events of each planned publisher, the handoff between prefill and decode, LoRA adapters, multimodal input. A server
without GetServerInfo (some builds of TensorRT-LLM) tells of its model alone: that is compared, the rest is left open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from srtctl.checks import openengine
from srtctl.checks.context import Context
from srtctl.checks.deployment import Deployment, Process, Worker
from srtctl.checks.grpc_call import UnaskableError
from srtctl.checks.model import FAIL, PASS, SKIP, Outcome, Target, TargetResult
from srtctl.checks.net import NetError
from srtctl.checks.openengine import Said, Server

#: The schema revisions that Dynamo's OpenEngine sidecar speaks, and the oldest server that it takes.
CLIENT_REVISION, OLDEST_SERVER = 1, 1
ZMQ = "zmq"
_SECONDS = 5.0
_LEFT_OPEN = (
    "its OpenEngine server has no GetServerInfo, so schema revision, role and handoff are not known before requests show "
    "them (`rank_routing`, `transfer`)"
)

Answers = Sequence[tuple[Process, "Said | NetError"]]


def run(context: Context, targets: Sequence[Target]) -> Outcome:
    """Asks every engine process that serves, and compares what they say with the plan, and with each other."""
    said = context.each(lambda target: _ask(context, target), targets)
    found = {target.worker: _servers(answers) for target, answers in said.items()}
    return Outcome(tuple(_result(context.deployment, target, answers, found) for target, answers in said.items()))


def _servers(answers: Answers) -> list[Server]:
    return [said.server for _, said in answers if isinstance(said, Said) and said.server]


def _ask(context: Context, target: Target) -> Answers:
    deployment = context.deployment
    answers: list[tuple[Process, Said | NetError]] = []
    for process in deployment.worker(target.worker).processes:
        if not process.serves or "grpc" not in process.listens:
            continue
        host, seconds = deployment.nodes[process.node].address, min(_SECONDS, context.timeout())
        try:
            answers.append((process, openengine.ask(host, process.listens["grpc"], seconds, deployment.model)))
        except NetError as error:
            answers.append((process, error))
    return answers


def _result(
    deployment: Deployment, target: Target, answers: Answers, found: Mapping[str, Sequence[Server]]
) -> TargetResult:
    worker = deployment.worker(target.worker)
    evidence = {process.name: _evidence(said) for process, said in answers if isinstance(said, Said)}
    wrong: list[str] = []
    left_open: list[str] = []
    for process, said in answers:
        if isinstance(said, UnaskableError):
            left_open.append(str(said))
        elif isinstance(said, NetError):
            wrong.append(str(said))
        else:
            wrong += complaints(deployment, worker, process, said, found)
            left_open += [] if said.server else [_LEFT_OPEN]
    if wrong:
        return TargetResult(target, FAIL, f"{target}: {wrong[0]}", evidence)
    if left_open:
        return TargetResult(target, SKIP, f"{target}: {left_open[0]}", evidence)
    facts = "; ".join(dict.fromkeys(said.facts() for _, said in answers if isinstance(said, Said)))
    return TargetResult(target, PASS, f"reports what the plan needs: {facts}", evidence)


def _evidence(said: Said) -> dict[str, object]:
    server = said.server
    return {
        "engine": said.facts(),
        "names": list(said.names),
        "role": server.role if server else None,
        "schema_revision": server.revision if server else None,
        "minimum_client_revision": server.minimum_client if server else None,
        "handoff": [server.backend, server.profile] if server and server.handoff else None,
        "kv_event_sources": [[source.dp_rank, source.transport, source.port] for source in said.sources],
        "lora": said.lora,
        "multimodal": said.multimodal,
    }


def complaints(
    deployment: Deployment, worker: Worker, process: Process, said: Said, found: Mapping[str, Sequence[Server]]
) -> Iterator[str]:
    """What a process of `worker` says that the plan does not bear; `found` are all engine processes by worker."""
    if server := said.server:
        if server.revision < OLDEST_SERVER or server.minimum_client > CLIENT_REVISION:
            yield (
                f"speaks schema revision {server.revision}, for clients from revision {server.minimum_client}; the sidecar "
                f"has revision {CLIENT_REVISION} and takes servers from revision {OLDEST_SERVER}"
            )
        if server.role != worker.role:
            yield f"reports role {server.role}, the plan has it as {worker.role}"
    if deployment.model not in said.names:
        yield f"serves model {', '.join(said.names) or 'without a name'}, the plan serves {deployment.model}"
    yield from _events(worker, process, said)
    if said.server and worker.role != "agg":
        yield from _handoff(deployment, worker, said.server, found)
    for feature, has in (("lora", said.lora), ("multimodal", said.multimodal)):
        if feature in worker.features and not has:
            yield f"reports no {feature} support, which its flags in the plan ask for"


def _events(worker: Worker, process: Process, said: Said) -> Iterator[str]:
    by_rank = {source.dp_rank: source for source in said.sources}
    for rank, publisher in sorted(worker.publishers.items()):
        source = by_rank.get(rank)
        if rank not in process.serves:
            continue
        if source is None:
            yield f"reports no source of KV events for rank {rank}, the plan has one on port {publisher.port}"
        elif source.transport != ZMQ:
            yield f"publishes the KV events of rank {rank} by {source.transport}, the plan by {ZMQ}"
        elif publisher.port and source.port != publisher.port:
            yield f"publishes the KV events of rank {rank} on port {source.port}, the plan on port {publisher.port}"


def _handoff(
    deployment: Deployment, worker: Worker, server: Server, found: Mapping[str, Sequence[Server]]
) -> Iterator[str]:
    if not server.handoff:
        yield f"reports no KV handoff, so as {worker.role} it is of no use"
        return
    ours = (server.backend, server.profile)
    for partner in deployment.workers:
        for other in found.get(partner.name, ()) if partner.role != worker.role else ():
            if other.handoff and (other.backend, other.profile) != ours:
                yield f"hands KV caches over as {_way(server)}, {partner.name} as {_way(other)}"
                return


def _way(server: Server) -> str:
    return f"{server.profile or 'an unnamed profile'} by {server.backend}"
