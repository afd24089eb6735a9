"""What the leader does with a request: prefill on the DP rank it names, wherever that rank lives, then generate."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from srtctl.sim.faults import Faults
from srtctl.sim.model import Model, ModelError
from srtctl.sim.sglang.channel import Message
from srtctl.sim.sglang.config import Config
from srtctl.sim.sglang.group import Group
from srtctl.sim.sglang.ranks import Rank

log = logging.getLogger("sglang")

DEFAULT_NEW_TOKENS = 16
TOKEN_SECONDS = 0.002  # long enough to abort a request while it runs, short enough for tests
_TEXT = "abcdefghijklmnopqrstuvwxyz"


class RequestError(Exception):
    """The request cannot be served: the client's fault."""


class InternalError(Exception):
    """The request failed inside the engine."""


@dataclass(frozen=True)
class Request:
    """A request as the engine sees it. Without `dp_rank` the engine takes the ranks in turn."""

    rid: str
    tokens: tuple[int, ...]
    dp_rank: int | None = None
    max_new_tokens: int | None = None


@dataclass(frozen=True)
class Chunk:
    """Newly generated tokens, and what is known about the request so far. `aborted` only on a last chunk."""

    tokens: tuple[int, ...]
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    finished: bool = False
    aborted: bool = False


class Engine:
    """Executes requests; one per leader process. Thread-safe."""

    def __init__(self, config: Config, model: Model, ranks: dict[int, Rank], faults: Faults, group: Group) -> None:
        """Raises ModelError when the model's vocabulary lacks a character that is generated."""
        self.context_length = config.context_length or model.context_length
        self._config = config
        self._ranks = ranks
        self._faults = faults
        self._group = group
        self._next_rank = itertools.cycle(range(config.topology.dp))
        self._running: dict[str, threading.Event] = {}
        self._text = {rank: _token_ids(f"r{rank}", model) for rank in range(config.topology.dp)}
        self._rest = _token_ids(_TEXT, model)

    def generate(self, request: Request) -> Iterator[Chunk]:
        """Prefill, then the generated tokens in chunks of `--stream-interval`. The text names the rank: `r1abc...`.

        Raises RequestError, InternalError, or GroupError when the rank's node is gone.
        """
        dp_rank = self._dp_rank(request)
        length = self._new_tokens(request)
        stop = self._running[request.rid] = threading.Event()
        try:
            cached = self._prefill(dp_rank, request.tokens)
            log.info(
                "Prefill: rid=%s dp_rank=%d prompt_tokens=%d cached_tokens=%d max_new_tokens=%d",
                *(request.rid, dp_rank, len(request.tokens), cached, length),
            )
            yield from self._decode(dp_rank, length, stop, len(request.tokens), cached)
        finally:
            self._running.pop(request.rid, None)

    def abort(self, rid: str, everything: bool = False) -> None:
        """Stop the request `rid`, or all requests; unknown ones are ignored."""
        for running, stop in list(self._running.items()):
            if everything or running == rid:
                stop.set()

    def flush(self) -> None:
        """Empty the cache of every rank on every node."""
        for dp_rank in range(self._config.topology.dp):
            self._on_rank(dp_rank, {"do": "flush"})

    def _dp_rank(self, request: Request) -> int:
        dp = self._config.topology.dp
        dp_rank = next(self._next_rank) if request.dp_rank is None else request.dp_rank
        if not 0 <= dp_rank < dp:
            raise RequestError(f"routed_dp_rank={dp_rank} is outside [0, {dp})")
        if dp_rank == self._faults.error_500:
            log.error("Failed: rid=%s dp_rank=%d", request.rid, dp_rank)
            raise InternalError(f"simulated fault: error_500={dp_rank}")
        return dp_rank

    def _new_tokens(self, request: Request) -> int:
        room = self.context_length - len(request.tokens)
        if room <= 0:
            raise RequestError(
                f"Input length ({len(request.tokens)} tokens) exceeds the maximum allowed length "
                f"({self.context_length - 1} tokens)"
            )
        wanted = DEFAULT_NEW_TOKENS if request.max_new_tokens is None else request.max_new_tokens
        return min(wanted, room)

    def _prefill(self, dp_rank: int, tokens: Sequence[int]) -> int:
        return int(self._on_rank(dp_rank, {"do": "prefill", "tokens": list(tokens)})["cached_tokens"])

    def _on_rank(self, dp_rank: int, request: Message) -> Message:
        node = self._config.topology.node_of(dp_rank)
        request = {"dp_rank": dp_rank, **request}
        return handler(self._ranks)(request) if node == 0 else self._group.call(node, request)

    def _decode(
        self, dp_rank: int, length: int, stop: threading.Event, prompt_tokens: int, cached: int
    ) -> Iterator[Chunk]:
        text = itertools.islice(itertools.chain(self._text[dp_rank], itertools.cycle(self._rest)), length)
        done = 0
        while True:
            tokens = tuple(itertools.islice(text, self._config.stream_interval))
            done += len(tokens)
            aborted = stop.wait(TOKEN_SECONDS * len(tokens))
            finished = aborted or done >= length
            yield Chunk(tokens, prompt_tokens, cached, done, finished, aborted)
            if finished:
                return


def handler(ranks: dict[int, Rank]) -> Callable[[Message], Message]:
    """What a node does for the leader on the ranks that live there: a function from request to answer."""

    def handle(request: Message) -> Message:
        rank = ranks[request["dp_rank"]]
        if request["do"] == "flush":
            rank.flush()
            return {}
        return {"cached_tokens": rank.prefill(request["tokens"])}

    return handle


def _token_ids(text: str, model: Model) -> tuple[int, ...]:
    try:
        return tuple(model.vocab[character] for character in text)
    except KeyError as missing:
        raise ModelError(f"{model.path}: the tokenizer has no token for {missing}") from None
