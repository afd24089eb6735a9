"""vLLM behind its OpenEngine server.

Source: vLLM's public OpenEngine branch. The engine has no role of its own: `kv_role` of its connector tells it. A session's
attributes are the kv_transfer_params that the connector hands from one engine to the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from srtctl.sim.openengine.engine import (
    EventSource,
    Facts,
    FailedError,
    Handoff,
    Listen,
    Ready,
    Role,
    Session,
    Step,
    Work,
    translated,
)
from srtctl.sim.rank import Rank
from srtctl.sim.vllm.config import Config
from srtctl.sim.vllm.engine import Engine
from srtctl.sim.vllm.info import VERSION
from srtctl.sim.vllm.nixl import SideChannel
from srtctl.sim.vllm.request import Finish, Request

#: vLLM names no profile in the public sources; what a session holds is what the name says.
BACKEND, PROFILE = "nixl", "vllm.kv_transfer_params.v1"
_ROLES: Mapping[str, Role] = {"kv_producer": "prefill", "kv_consumer": "decode", "kv_both": "agg"}


class OpenEngineAdapter:
    """OpenEngine's `Engine` over that of a serving process."""

    def __init__(
        self,
        config: Config,
        where: Listen,
        engine: Engine,
        ranks: Mapping[int, Rank],
        channels: Mapping[int, SideChannel],
    ) -> None:
        """`ranks` and `channels` are those of this node."""
        self._engine = engine
        self._channels = channels
        self.facts = _facts(config, where, engine, ranks)

    def generate(self, work: Work) -> Iterator[Step | Ready]:
        """As OpenEngine's; also raises FailedError when the KV cache cannot be taken."""
        transfer: Mapping[str, object] = {}
        if work.context_only:
            transfer = {"do_remote_decode": True}
        elif work.session:
            transfer = _params(work.session)
        done, prompt = 0, len(work.tokens)
        with translated():
            for chunk in self._engine.generate(
                Request(work.request_id, work.tokens, work.dp_rank, work.max_tokens, transfer)
            ):
                done += len(chunk.tokens)
                if not work.context_only:
                    finish = chunk.finish and ("length" if chunk.finish is Finish.length else "cancelled")
                    yield Step(chunk.tokens, prompt, 0, done, finish)  # type: ignore[arg-type]
                elif chunk.finish is Finish.aborted:
                    yield Step((), prompt, 0, done, "cancelled")
                elif chunk.transfer is not None:
                    yield Ready(Session(work.request_id, work.dp_rank or 0, chunk.transfer), prompt)

    def abort(self, request_id: str) -> None:
        """Stop the request; unknown ones are ignored."""
        self._engine.abort(request_id)

    def open_sessions(self) -> int:
        """How many requests have blocks that nobody has taken yet."""
        return sum(channel.waiting() for channel in self._channels.values())


def _facts(config: Config, where: Listen, engine: Engine, ranks: Mapping[int, Rank]) -> Facts:
    name, *aliases = config.served_model_names
    role: Role = _ROLES[config.nixl.role] if config.nixl else "agg"
    handoff = None
    if config.nixl and role != "agg":
        offered = (config.nixl.address.host, config.nixl.address.port) if role == "prefill" else ("", 0)
        handoff = Handoff(BACKEND, PROFILE, BACKEND, *offered)
    ports = {dp_rank: rank.port for dp_rank, rank in ranks.items()}
    topic = config.kv_events.topic if config.kv_events else ""
    return Facts(
        engine="vllm",
        version=VERSION,
        role=role,
        model_path=config.model,
        served_name=name,
        context_length=engine.context_length,
        aliases=tuple(aliases),
        tp=config.topology.tp,
        pp=config.topology.pp,
        dp=config.topology.dp,
        start_rank=config.served_ranks[0],
        block_size=config.block_size,
        handoff=handoff,
        sources=tuple(EventSource(rank, where.advertised, port, topic) for rank, port in ports.items() if port),
        lora=config.lora,
        multimodal=config.multimodal,
    )


def _params(session: Session) -> Mapping[str, object]:
    if "remote_engine_id" not in session.attributes:
        names = ", ".join(sorted(session.attributes)) or "nothing"
        raise FailedError(
            "INVALID_ARGUMENT", f"session {session.session_id!r} is none of vLLM's: its attributes have {names}"
        )
    return session.attributes
