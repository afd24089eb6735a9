"""Check `capabilities`: an engine that speaks OpenEngine can do what the plan uses it for.

It asks the engines themselves, before anything is asked of Dynamo: schema revision, role, model name, the KV events of
each planned publisher, the handoff between prefill and decode, LoRA adapters, multimodal input. A server that has no
discovery (some builds of TensorRT-LLM) leaves it open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from srtctl.checks import openengine
from srtctl.checks.context import Context
from srtctl.checks.deployment import Deployment, Process, Worker
from srtctl.checks.model import FAIL, PASS, SKIP, Outcome, Target, TargetResult
from srtctl.checks.net import NetError
from srtctl.checks.openengine import Said

#: The schema revisions that Dynamo's OpenEngine sidecar speaks, and the oldest server that it takes.
CLIENT_REVISION, OLDEST_SERVER = 1, 1
ZMQ = "zmq"
_SECONDS = 5.0


def run(context: Context, targets: Sequence[Target]) -> Outcome:
    """Asks every engine process that serves, and compares what they say with the plan, and with each other."""
    said = context.each(lambda target: _ask(context, target), targets)
    found = {target.worker: word for target, word in said.items() if isinstance(word, Said)}
    return Outcome(tuple(_result(context.deployment, target, word, found) for target, word in said.items()))


def _ask(context: Context, target: Target) -> Said | Exception:
    deployment = context.deployment
    process = _serving(deployment.worker(target.worker))
    host = deployment.nodes[process.node].address
    try:
        return openengine.ask(host, process.listens["grpc"], min(_SECONDS, context.timeout()))
    except (NetError, openengine.UnaskableError) as error:
        return error


def _serving(worker: Worker) -> Process:
    return next(process for process in worker.processes if "grpc" in process.listens)


def _result(deployment: Deployment, target: Target, said: Said | Exception, found: Mapping[str, Said]) -> TargetResult:
    if isinstance(said, openengine.UnaskableError):
        return TargetResult(target, SKIP, f"{target}: {said}")
    if isinstance(said, Exception):
        return TargetResult(target, FAIL, f"{target}: {said}")
    worker = deployment.worker(target.worker)
    evidence: dict[str, object] = {
        "engine": said.facts(),
        "names": list(said.names),
        "handoff": [said.backend, said.profile] if said.handoff else None,
        "kv_event_sources": [[source.dp_rank, source.transport, source.port] for source in said.sources],
        "lora": said.lora,
        "multimodal": said.multimodal,
    }
    if wrong := next(complaints(deployment, worker, said, found), ""):
        return TargetResult(target, FAIL, f"{target}: {wrong}", evidence)
    return TargetResult(target, PASS, f"reports what the plan needs: {said.facts()}", evidence)


def complaints(deployment: Deployment, worker: Worker, said: Said, found: Mapping[str, Said]) -> Iterator[str]:
    """What the engine of `worker` says that the plan does not bear; `found` are all engines by worker."""
    if said.revision < OLDEST_SERVER or said.minimum_client > CLIENT_REVISION:
        yield (
            f"speaks schema revision {said.revision}, for clients from revision {said.minimum_client}; the sidecar has "
            f"revision {CLIENT_REVISION} and takes servers from revision {OLDEST_SERVER}"
        )
    if said.role != worker.role:
        yield f"reports role {said.role}, the plan has it as {worker.role}"
    if deployment.model not in said.names:
        yield f"serves model {', '.join(said.names) or 'without a name'}, the plan serves {deployment.model}"
    yield from _events(worker, said)
    if worker.role != "agg":
        yield from _handoff(deployment, worker, said, found)
    for feature, has in (("lora", said.lora), ("multimodal", said.multimodal)):
        if feature in worker.features and not has:
            yield f"reports no {feature} support, which its flags in the plan ask for"


def _events(worker: Worker, said: Said) -> Iterator[str]:
    by_rank = {source.dp_rank: source for source in said.sources}
    for rank, publisher in sorted(worker.publishers.items()):
        source = by_rank.get(rank)
        if source is None:
            yield f"reports no source of KV events for rank {rank}, the plan has one on port {publisher.port}"
        elif source.transport != ZMQ:
            yield f"publishes the KV events of rank {rank} by {source.transport}, the plan by {ZMQ}"
        elif publisher.port and source.port != publisher.port:
            yield f"publishes the KV events of rank {rank} on port {source.port}, the plan on port {publisher.port}"


def _handoff(deployment: Deployment, worker: Worker, said: Said, found: Mapping[str, Said]) -> Iterator[str]:
    if not said.handoff:
        yield f"reports no KV handoff, so as {worker.role} it is of no use"
        return
    ours = (said.backend, said.profile)
    partners = [(w.name, found[w.name]) for w in deployment.workers if w.name in found and w.role != worker.role]
    apart = [(name, theirs) for name, theirs in partners if theirs.handoff and (theirs.backend, theirs.profile) != ours]
    for name, theirs in apart[:1]:
        yield f"hands KV caches over as {_way(said)}, {name} as {_way(theirs)}"


def _way(said: Said) -> str:
    return f"{said.profile or 'an unnamed profile'} by {said.backend}"
