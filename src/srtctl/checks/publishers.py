"""Check `publishers`: the socket of every KV publisher is there, and what it sends is what the router can use.

The socket is on the planned port, or on the one that the engine tells where the plan leaves it to the engine; either way
it belongs to the process that the plan has there.

The check subscribes as the sidecar does, makes the rank store new blocks with a pinned request, and looks at the batch:
three frames (topic, 8-byte sequence, msgpack payload), `[timestamp, events, DP rank]`, the rank of the publisher, the
registered block size. Formats: SGLang's KV event publisher and what Dynamo 1.6.1's sidecar decodes. A missing rank
counts as rank 0 there. Frames published before the subscription is complete are lost, so each try has a new prompt.
"""

from __future__ import annotations

import importlib
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from srtctl.checks import published, survey
from srtctl.checks.context import Context
from srtctl.checks.deployment import Publisher, Worker
from srtctl.checks.discovery import Card
from srtctl.checks.grpc_call import NoGrpcError
from srtctl.checks.kv_events import prompt
from srtctl.checks.model import FAIL, PASS, SKIP, Outcome, Target, TargetResult
from srtctl.checks.net import NetError
from srtctl.checks.pinning import Pin

_CONNECT_SECONDS = 2.0
_LISTEN_SECONDS = 0.5  # after each request
_EPHEMERAL = 32768  # the kernel's own choices begin here


@dataclass(frozen=True)
class Batch:
    """A decoded message of a publisher; `kinds` are the types of its events, `block_sizes` those of its stored blocks."""

    topic: str
    sequence: int
    dp_rank: int | None
    kinds: tuple[str, ...]
    block_sizes: frozenset[int]


class MalformedError(Exception):
    """A message that no subscriber can use; the text says why."""


def run(context: Context, targets: Sequence[Target]) -> Outcome:
    """Listen to all targets side by side. Skipped where this Python has no pyzmq or msgpack."""
    try:
        zmq, msgpack = importlib.import_module("zmq"), importlib.import_module("msgpack")
    except ImportError as error:
        reason = f"the Python that runs the checks has no module {error.name!r}, so no socket can be listened to"
        return Outcome(tuple(TargetResult(target, SKIP, reason) for target in targets))
    try:
        instances = context.instances()
    except NetError as error:
        return Outcome(tuple(TargetResult(target, FAIL, f"{target}: {error}") for target in targets))
    transport = zmq.Context()
    try:
        listener = _Listener(context, instances, zmq, msgpack, transport)
        return Outcome(tuple(context.each(listener.target, targets).values()))
    finally:
        transport.destroy(linger=0)


def decode(frames: Sequence[bytes], msgpack: Any) -> Batch:
    """A message as Dynamo's sidecar reads it. Raises MalformedError."""
    if len(frames) != 3:
        raise MalformedError(f"a message has {len(frames)} frames, not three")
    topic, sequence, payload = frames
    try:
        content = msgpack.unpackb(payload, strict_map_key=False)
    except (ValueError, msgpack.exceptions.UnpackException) as error:
        raise MalformedError(f"a payload is no msgpack: {error}") from None
    if not isinstance(content, list) or len(content) < 2 or not isinstance(content[1], list):
        raise MalformedError(f"a batch is not [timestamp, events, DP rank] but {type(content).__name__}")
    kinds, sizes = [], set()
    for event in content[1]:
        try:
            kind = event.get("type") if isinstance(event, dict) else event[0]
            kinds.append(str(kind))
            if kind == "BlockStored":
                sizes.add(int(event["block_size"] if isinstance(event, dict) else event[4]))
        except (IndexError, KeyError, TypeError, ValueError):
            raise MalformedError(f"an event is not what SGLang or vLLM publish: {str(event)[:80]}") from None
    rank = content[2] if len(content) > 2 else None
    return Batch(topic.decode(errors="replace"), int.from_bytes(sequence, "big"), rank, tuple(kinds), frozenset(sizes))


def complaint(batch: Batch, worker: Worker, dp_rank: int, block_size: int) -> str:
    """What is wrong with a batch of that rank's publisher; empty if nothing is."""
    if not batch.topic.startswith(worker.topic):
        return f"it publishes under topic {batch.topic!r}, the plan has {worker.topic!r}"
    if batch.dp_rank is None and dp_rank:
        return f"its batches carry no DP rank, which counts as rank 0, not {dp_rank}"
    if batch.dp_rank is not None and batch.dp_rank != dp_rank:
        return f"its batches carry DP rank {batch.dp_rank}, not {dp_rank}"
    if batch.block_sizes - {block_size}:
        found = ", ".join(map(str, sorted(batch.block_sizes)))
        return f"its events have blocks of {found} tokens, the worker registered blocks of {block_size}"
    return ""


@dataclass(frozen=True)
class _Listener:
    context: Context
    instances: Mapping[Target, Card]
    zmq: Any
    msgpack: Any
    transport: Any

    def target(self, target: Target) -> TargetResult:
        worker = self.context.deployment.worker(target.worker)
        publisher = worker.publishers[target.rank]
        node = self.context.deployment.nodes[publisher.node]
        evidence: dict[str, object] = {"node": node.name, "port": publisher.port, "process": publisher.process}
        grpc_port = self.context.deployment.process_of(target).listens.get("grpc")
        try:
            port = published.port_of(publisher, target.rank, node.address, grpc_port, self.context.timeout())
        except NoGrpcError as error:
            return TargetResult(target, SKIP, f"{error}, so its engine cannot be asked where it publishes", evidence)
        except (NetError, published.NotPublishedError) as error:
            return TargetResult(target, FAIL, f"{target}: {error}", evidence)
        view = survey.read(self.context.deployment.run_dir, publisher.node)
        evidence.update(port=port, discovered=publisher.discovered, owner=view.listening.get(port) if view else None)
        place = f"port {port} on {node.name}"
        pinned = self.context.pin(self.instances, target)
        if not isinstance(pinned, Pin):
            return TargetResult(target, FAIL, f"{target}: {pinned}", evidence)
        try:
            socket.create_connection((node.address, port), timeout=_CONNECT_SECONDS).close()
        except OSError as error:
            evidence["listening_unclaimed"] = self._unclaimed(publisher)
            words = f"{target}: its KV publisher does not listen on {place}: {error.strerror or error}"
            return TargetResult(target, FAIL, words, evidence)
        if other := published.stranger(publisher, port, view):
            words = f"{target}: {publisher.process} publishes on {place}, but that is the socket of {other}"
            return TargetResult(target, FAIL, words, evidence)
        try:
            found = self._hear(target, pinned, f"tcp://{node.address}:{port}", evidence)
        except NetError as error:
            return TargetResult(target, FAIL, f"{target}: {error}", evidence)
        except MalformedError as error:
            return TargetResult(target, FAIL, f"{target}: what {place} sends cannot be used: {error}", evidence)
        result = self._judge(target, worker, found, evidence, place)
        if result.verdict == PASS and publisher.discovered and view is None:
            words = f"{target}: nobody saw whose socket {place} is: {node.name} did not survey itself (logs/survey.log)"
            return replace(result, verdict=SKIP, message=words)
        return result

    def _hear(self, target: Target, pinned: Pin, endpoint: str, evidence: dict[str, object]) -> Batch | None:
        """The first batch with a stored block, after as many new prompts as it takes; None at the deadline."""
        decodes = self.context.deployment.worker(target.worker).role == "decode"
        seconds = self.context.limits.settle if decodes else self.context.limits.kv_events
        deadline = self.context.deadline.within(seconds)
        card, tries = self.instances[target], 0
        subscriber = self.transport.socket(self.zmq.SUB)
        try:
            subscriber.setsockopt(self.zmq.SUBSCRIBE, b"")
            subscriber.connect(endpoint)
            while True:
                tries += 1
                answer = self.context.chat(prompt(card.block_size, card.context_length), pinned.request)
                evidence.update(tries=tries, prompt_tokens=answer.prompt_tokens)
                listening = deadline.within(_LISTEN_SECONDS)
                while subscriber.poll(max(int(listening.remaining() * 1000), 1)):
                    batch = decode(subscriber.recv_multipart(), self.msgpack)
                    if "BlockStored" in batch.kinds:
                        return batch
                    if not listening.remaining():
                        break
                if not deadline.remaining():
                    return None
        finally:
            subscriber.close(linger=0)

    def _judge(
        self, target: Target, worker: Worker, batch: Batch | None, evidence: dict[str, object], place: str
    ) -> TargetResult:
        if batch is None and worker.role == "decode":
            return TargetResult(target, PASS, "its socket is there; a decode engine need not keep a cache", evidence)
        if batch is None:
            words = (
                f"its KV publisher on {place} sent no Stored event for {evidence['tries']} new prompts, so there is "
            )
            return TargetResult(
                target, SKIP, words + "nothing to look at; whether any reaches the router is `kv_events`", evidence
            )
        evidence.update(
            topic=batch.topic,
            sequence=batch.sequence,
            event_dp_rank=batch.dp_rank,
            event_block_sizes=sorted(batch.block_sizes),
        )
        wrong = complaint(batch, worker, target.rank, self.instances[target].block_size)
        if wrong:
            return TargetResult(target, FAIL, f"{target}: its KV publisher listens on {place}, but {wrong}", evidence)
        return TargetResult(target, PASS, "its socket sends usable batches with its own rank", evidence)

    def _unclaimed(self, publisher: Publisher) -> list[int]:
        """Ports that the publisher's process listens on and nobody claimed: the publisher may be there instead."""
        view = survey.read(self.context.deployment.run_dir, publisher.node) or survey.NodeView()
        claimed = self.context.deployment.claimed.get(publisher.node, frozenset())
        found = [port for port, process in view.listening.items() if process == publisher.process]
        return sorted(port for port in found if port not in claimed and port < _EPHEMERAL)
