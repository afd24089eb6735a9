"""What a serving process does with a request: prefill on the DP rank it names, wherever that runs, then generate."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from srtctl.sim.errors import InternalError, RequestError, TransferError, UnavailableError
from srtctl.sim.faults import Faults
from srtctl.sim.group import Group
from srtctl.sim.model import Model
from srtctl.sim.nodes import Nodes
from srtctl.sim.rank import Rank
from srtctl.sim.text import DEFAULT_NEW_TOKENS, TOKEN_SECONDS, Text
from srtctl.sim.vllm.config import Config
from srtctl.sim.vllm.nixl import SideChannel, take
from srtctl.sim.vllm.request import Chunk, Finish, Request

log = logging.getLogger("vllm")


class Engine:
    """Executes requests; one per serving process. Thread-safe."""

    def __init__(
        self,
        config: Config,
        model: Model,
        ranks: Mapping[int, Rank],
        faults: Faults,
        group: Group,
        channels: Mapping[int, SideChannel],
    ) -> None:
        """`channels` are the NIXL side channels by rank, empty without the connector.

        Raises ModelError when the model's vocabulary lacks a character that is generated.
        """
        self.context_length = config.max_model_len or model.context_length
        self._config = config
        self._faults = faults
        self._nodes = Nodes(config.node_rank, ranks, group, log)
        self._channels = channels
        self._next_rank = itertools.cycle(config.served_ranks)
        self._running: dict[str, threading.Event] = {}
        self._text = Text(model, config.served_ranks)

    def generate(self, request: Request) -> Iterator[Chunk]:
        """Prefill, then the generated tokens in chunks of `--stream-interval`. The text names the rank: `r1abc...`.

        Raises RequestError, InternalError, UnavailableError, TransferError, or GroupError when a node that computes
        for the rank is gone.
        """
        if self._faults.dead_engine:
            raise UnavailableError("simulated fault: dead_engine")
        dp_rank, length = self._dp_rank(request), self._new_tokens(request)
        stop = self._running[request.rid] = threading.Event()
        try:
            handover = self._prompt(request, dp_rank, length)
            yield from self._decode(dp_rank, length, stop, handover)
        except TransferError as error:
            log.error("Failed: rid=%s %s", request.rid, error)
            raise
        finally:
            self._running.pop(request.rid, None)

    def abort(self, rid: str) -> None:
        """Stop the request `rid`; an unknown one is ignored."""
        if stop := self._running.get(rid):
            log.info("Aborted request %s.", rid)
            stop.set()

    def _prompt(self, request: Request, dp_rank: int, length: int) -> Mapping[str, Any] | None:
        """Run the prompt; returns what a decode engine must know to go on, if one is to."""
        channel, transfer = self._channels.get(dp_rank), request.transfer
        if transfer and channel is None:
            log.warning("Got kv_transfer_params, but no KVConnector found. Disabling KVTransfer for this request.")
            transfer = {}
        leg, handed = "Prefill", {}
        if transfer.get("do_remote_prefill"):
            leg, handed = "Decode", {"kv_from": f"{transfer.get('remote_host')}:{transfer.get('remote_port')}"}
            handed["blocks"] = str(take(transfer, self._config.block_size))
        nodes = self._config.topology.nodes_of(dp_rank)
        cached = self._nodes.prefill(nodes, dp_rank, request.rid, request.tokens)
        facts: dict[str, Any] = {"rid": request.rid, "dp_rank": dp_rank, "prompt_tokens": len(request.tokens)}
        facts |= {"cached_tokens": cached, "max_new_tokens": length, **handed}
        handover = None
        if channel and transfer.get("do_remote_decode"):
            handover = channel.keep(request.rid, len(request.tokens), self._config.topology.tp)
            facts["kv_at"] = channel.address
        log.info("%s: %s", leg, " ".join(f"{name}={value}" for name, value in facts.items()))
        return handover

    def _dp_rank(self, request: Request) -> int:
        dp_rank = next(self._next_rank) if request.dp_rank is None else request.dp_rank
        if dp_rank not in self._config.served_ranks:
            served = list(self._config.served_ranks)
            raise RequestError(f"data_parallel_rank {dp_rank} is out of range: this server has {served}")
        if dp_rank == self._faults.error_500:
            raise InternalError(f"simulated fault: error_500={dp_rank}")
        return dp_rank

    def _new_tokens(self, request: Request) -> int:
        room = self.context_length - len(request.tokens)
        if room <= 0:
            raise RequestError(
                f"This model's maximum context length is {self.context_length} tokens. However, your request has "
                f"{len(request.tokens)} input tokens. Please reduce the length of the input messages."
            )
        if self._faults.zero_tokens:
            return 0
        return min(DEFAULT_NEW_TOKENS if request.max_new_tokens is None else request.max_new_tokens, room)

    def _decode(
        self, dp_rank: int, length: int, stop: threading.Event, handover: Mapping[str, Any] | None
    ) -> Iterator[Chunk]:
        text, done = itertools.islice(self._text.of(dp_rank), length), 0
        while True:
            part = tuple(itertools.islice(text, self._config.stream_interval))
            done += len(part)
            aborted = stop.wait(TOKEN_SECONDS * len(part))
            tokens, words = tuple(token for token, _ in part), "".join(word for _, word in part)
            if aborted:
                yield Chunk(tokens, words, Finish.aborted, done)
                return
            if done >= length:
                yield Chunk(tokens, words, Finish.length, done, handover)
                return
            yield Chunk(tokens, words)
