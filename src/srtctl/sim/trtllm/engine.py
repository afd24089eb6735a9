"""What rank 0 does with a request: run the prompt through all ranks, then generate, or hand the KV cache over."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterator

from srtctl.sim.channel import Message
from srtctl.sim.faults import Faults
from srtctl.sim.group import Group
from srtctl.sim.kv_cache import PrefixCache
from srtctl.sim.model import Model
from srtctl.sim.openengine.engine import Facts, Handoff, Ready, RejectedError, Step, Work, translated
from srtctl.sim.text import DEFAULT_NEW_TOKENS, TOKEN_SECONDS, Text
from srtctl.sim.trtllm.config import Config
from srtctl.sim.trtllm.transceiver import Transceiver, fetch

log = logging.getLogger("trtllm")

ENGINE, VERSION = "tensorrt_llm", "1.3.0+sim"
PROFILE = "tensorrt_llm.disaggregated_params.v1"


class Engine:
    """Executes requests; one per engine, in rank 0. Thread-safe."""

    def __init__(
        self, config: Config, model: Model, faults: Faults, group: Group, transceiver: Transceiver | None
    ) -> None:
        """`transceiver` is where a prefill engine offers KV caches. Raises ModelError as Text does."""
        self._config = config
        self._faults = faults
        self._group = group
        self._transceiver = transceiver
        self._cache = PrefixCache(config.block_size, config.total_tokens if config.block_reuse else 0)
        self._text = Text(model, [0])
        self._running: dict[str, threading.Event] = {}
        self._lock = threading.Lock()
        self.facts = Facts(
            engine=ENGINE,
            version=VERSION,
            role=config.role,
            model_path=config.model,
            served_name=config.model,
            context_length=config.max_seq_len or model.context_length,
            tp=config.tp,
            pp=config.pp,
            block_size=config.block_size,
            handoff=_handoff(config, transceiver),
        )

    def generate(self, work: Work) -> Iterator[Step | Ready]:
        """As OpenEngine's `Engine`; also raises FailedError when a rank is gone or the KV cache cannot be fetched."""
        if self._faults.dead_engine:
            raise RejectedError("simulated fault: dead_engine", "UNAVAILABLE")
        if self._faults.error_500 is not None:
            raise RejectedError("simulated fault: error_500", "INTERNAL")
        room = self.facts.context_length - len(work.tokens)
        if room <= 0:
            raise RejectedError(f"prompt length {len(work.tokens)} reaches max_seq_len {self.facts.context_length}")
        stop = self._running[work.request_id] = threading.Event()
        try:
            with translated():
                yield from self._run(work, room, stop)
        finally:
            self._running.pop(work.request_id, None)

    def abort(self, request_id: str) -> None:
        """Stop the request; unknown ones are ignored."""
        if stop := self._running.get(request_id):
            stop.set()

    def open_sessions(self) -> int:
        """How many KV caches wait to be fetched."""
        return self._transceiver.waiting() if self._transceiver else 0

    def _run(self, work: Work, room: int, stop: threading.Event) -> Iterator[Step | Ready]:
        facts: dict[str, object] = {"rid": work.request_id, "dp_rank": 0, "prompt_tokens": len(work.tokens)}
        if work.session:
            assert self._config.transceiver is not None, "a decode engine has one, as its settings were checked"
            fetch(work.session, len(work.tokens), self._config.transceiver.backend)
            facts["session"] = work.session.session_id
        cached = self._prefill(work)
        facts["cached_tokens"] = cached
        if work.context_only:
            assert self._transceiver is not None, "a prefill engine has one, as its settings were checked"
            session = self._transceiver.offer(len(work.tokens), next(self._text.of(0))[0])
            self._tell("Prefill", facts | {"session": session.session_id})
            yield Ready(session, len(work.tokens))
            return
        wanted = DEFAULT_NEW_TOKENS if work.max_tokens is None else work.max_tokens
        length = 0 if self._faults.zero_tokens else min(wanted, room)
        self._tell("Decode" if work.session else "Prefill", facts | {"max_new_tokens": length})
        yield from self._decode(work, length, cached, stop)

    def _prefill(self, work: Work) -> int:
        """Run the prompt through all ranks; returns how many of its tokens were cached."""
        for rank in range(1, self._config.world):
            self._group.call(rank, {"do": "forward", "rid": work.request_id})
        with self._lock:
            return self._cache.use(work.tokens).cached_tokens

    def _decode(self, work: Work, length: int, cached: int, stop: threading.Event) -> Iterator[Step]:
        prompt = len(work.tokens)
        for done, (token, _) in enumerate(itertools.islice(self._text.of(0), length), 1):
            if stop.wait(TOKEN_SECONDS):
                log.info("Aborted: rid=%s", work.request_id)
                yield Step((), prompt, cached, done - 1, "cancelled")
                return
            yield Step((token,), prompt, cached, done, "length" if done == length else None)
        if not length:
            yield Step((), prompt, cached, 0, "length")

    def _tell(self, leg: str, facts: dict[str, object]) -> None:
        log.info("%s: %s", leg, " ".join(f"{name}={value}" for name, value in facts.items()))


def forward(request: Message) -> Message:
    """What every rank but 0 does for a request."""
    log.info("Forward: rid=%s", request["rid"])
    return {}


def _handoff(config: Config, transceiver: Transceiver | None) -> Handoff | None:
    if config.transceiver is None or config.role == "agg":
        return None
    protocol = config.transceiver.backend.lower()
    if transceiver is None:
        return Handoff(ENGINE, PROFILE, protocol)
    return Handoff(ENGINE, PROFILE, protocol, transceiver.host, transceiver.port)
