"""What the leader does with a request: prefill on the DP rank it names, wherever that rank lives, then generate."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterator

from srtctl.sim.errors import (
    AbortedError,
    GroupError,
    InternalError,
    RequestError,
    TransferError,
    UnavailableError,
)
from srtctl.sim.faults import Faults
from srtctl.sim.group import Group
from srtctl.sim.model import Model
from srtctl.sim.nodes import Nodes
from srtctl.sim.rank import Rank
from srtctl.sim.sglang.config import Config
from srtctl.sim.sglang.disaggregation import Leg, Role
from srtctl.sim.sglang.request import Abort, Chunk, Request
from srtctl.sim.text import DEFAULT_NEW_TOKENS, TOKEN_SECONDS, Text

log = logging.getLogger("sglang")

ABORTED = Abort("Aborted by AbortRequest.")


class Engine:
    """Executes requests; one per leader process. Thread-safe."""

    def __init__(
        self, config: Config, model: Model, ranks: dict[int, Rank], faults: Faults, group: Group, role: Role
    ) -> None:
        """Raises ModelError when the model's vocabulary lacks a character that is generated."""
        self.context_length = config.context_length or model.context_length
        self._config = config
        self._faults = faults
        self._nodes = Nodes(0, ranks, group, log)
        self._role = role
        self._next_rank = itertools.cycle(range(config.topology.dp))
        self._running: dict[str, threading.Event] = {}
        self._text = Text(model, range(config.topology.dp))

    def generate(self, request: Request) -> Iterator[Chunk]:
        """Prefill, then the generated tokens in chunks of `--stream-interval`. The text names the rank: `r1abc...`.

        Raises RequestError, InternalError, UnavailableError, or GroupError when a node that computes for the rank is
        gone. A failed transfer of the KV cache ends in a chunk with an abort, as SGLang does it.
        """
        if self._faults.dead_engine:
            raise UnavailableError("simulated fault: dead_engine")
        stop = self._running[request.rid] = threading.Event()
        try:
            yield from self._run(request, stop)
        except AbortedError:
            log.info("Aborted: rid=%s", request.rid)
            yield Chunk((), len(request.tokens), 0, 0, finished=True, abort=ABORTED)
        except TransferError as error:
            self._failed(request, error)
            yield Chunk((), len(request.tokens), 0, 0, finished=True, abort=Abort(str(error), 500))
        except (RequestError, InternalError, GroupError) as error:
            self._failed(request, error)
            raise
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
            self._nodes.flush(self._config.topology.node_of(dp_rank), dp_rank)

    def _run(self, request: Request, stop: threading.Event) -> Iterator[Chunk]:
        dp_rank = self._dp_rank(request)
        length = self._new_tokens(request)
        leg = Leg(request, dp_rank, stop)
        handed = self._role.before(leg)
        cached = self._nodes.prefill(self._config.topology.nodes_of(dp_rank), dp_rank, request.rid, request.tokens)
        facts = {"rid": request.rid, "dp_rank": dp_rank, "prompt_tokens": len(request.tokens)}
        facts |= {"cached_tokens": cached, "max_new_tokens": length, **handed}
        log.info("%s: %s", self._role.leg, " ".join(f"{name}={value}" for name, value in facts.items()))
        self._role.after(leg)
        yield from self._decode(dp_rank, length, stop, len(request.tokens), cached)

    def _failed(self, request: Request, error: Exception) -> None:
        log.error("Failed: rid=%s %s", request.rid, error)
        self._role.failed(request, str(error))

    def _dp_rank(self, request: Request) -> int:
        dp = self._config.topology.dp
        implied = self._role.dp_rank(request)
        dp_rank = next(self._next_rank) if implied is None else implied
        if not 0 <= dp_rank < dp:
            raise RequestError(f"routed_dp_rank={dp_rank} is outside [0, {dp})")
        if dp_rank == self._faults.error_500:
            raise InternalError(f"simulated fault: error_500={dp_rank}")
        return dp_rank

    def _new_tokens(self, request: Request) -> int:
        room = self.context_length - len(request.tokens)
        if room <= 0:
            raise RequestError(
                f"Input length ({len(request.tokens)} tokens) exceeds the maximum allowed length "
                f"({self.context_length - 1} tokens)"
            )
        if self._faults.zero_tokens:
            return 0
        wanted = DEFAULT_NEW_TOKENS if request.max_new_tokens is None else request.max_new_tokens
        return min(wanted, room)

    def _decode(
        self, dp_rank: int, length: int, stop: threading.Event, prompt_tokens: int, cached: int
    ) -> Iterator[Chunk]:
        text = (token for token, _ in itertools.islice(self._text.of(dp_rank), length))
        done = 0
        while True:
            tokens = tuple(itertools.islice(text, self._config.stream_interval))
            done += len(tokens)
            aborted = stop.wait(TOKEN_SECONDS * len(tokens))
            finished = aborted or done >= length
            yield Chunk(tokens, prompt_tokens, cached, done, finished, ABORTED if aborted else None)
            if finished:
                return
