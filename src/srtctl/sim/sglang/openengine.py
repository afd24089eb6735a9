"""SGLang behind its OpenEngine server.

Source of names and profile: SGLang's public OpenEngine branch. Its two legs meet in a room at the prefill engine's
bootstrap server. OpenEngine runs the prefill leg first: the engine makes up the room itself, keeps the leg running in the
background, and the session tells the decode engine where the room is.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator

from srtctl.sim.address import Address
from srtctl.sim.errors import TransferError
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
from srtctl.sim.sglang.config import Config
from srtctl.sim.sglang.disaggregation import Role as Disaggregation
from srtctl.sim.sglang.engine import Engine
from srtctl.sim.sglang.info import VERSION
from srtctl.sim.sglang.request import Bootstrap, Chunk, Request

PROFILE = "sglang.bootstrap.v1"
HOST, PORT, ROOM = "bootstrap_host", "bootstrap_port", "bootstrap_room"
_ROLES: dict[str, Role] = {"null": "agg", "prefill": "prefill", "decode": "decode"}
_POLL_SECONDS = 0.005


class OpenEngineAdapter:
    """OpenEngine's `Engine` over a leader's."""

    def __init__(self, config: Config, where: Listen, engine: Engine, role: Disaggregation) -> None:
        self._engine = engine
        self._role = role
        self._dp = config.topology.dp
        self._bootstrap = Address(where.advertised, config.bootstrap_port)
        self.facts = _facts(config, where, engine)

    def generate(self, work: Work) -> Iterator[Step | Ready]:
        """As OpenEngine's; also raises FailedError when the legs of a request do not meet."""
        with translated():
            if work.context_only:
                yield self._context(work)
                return
            for chunk in self._engine.generate(_request(work, _meeting(work.session) if work.session else None)):
                yield _step(chunk)

    def abort(self, request_id: str) -> None:
        """Stop the request; unknown ones are ignored."""
        self._engine.abort(request_id)

    def open_sessions(self) -> int:
        """How many KV caches wait to be taken."""
        return self._role.waiting()

    def _context(self, work: Work) -> Ready:
        room = secrets.randbits(62) // self._dp * self._dp + (work.dp_rank or 0)
        leg = _Background(self._engine, _request(work, Bootstrap(self._bootstrap, room)))
        while leg.running() and not self._role.offered(room):
            time.sleep(_POLL_SECONDS)
        leg.check()
        # A room does not fit in the doubles of a Struct
        attributes = {HOST: self._bootstrap.host, PORT: self._bootstrap.port, ROOM: str(room)}
        return Ready(Session(str(room), room % self._dp, attributes), len(work.tokens))


class _Background:
    """A prefill leg in a thread of its own, up to its end."""

    def __init__(self, engine: Engine, request: Request) -> None:
        self._engine = engine
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(request,), name=request.rid, daemon=True)
        self._thread.start()

    def running(self) -> bool:
        return self._thread.is_alive()

    def check(self) -> None:
        """Raises what has ended the leg, if something did."""
        if self._error:
            raise self._error

    def _run(self, request: Request) -> None:
        try:
            for chunk in self._engine.generate(request):
                if chunk.abort:
                    self._error = TransferError(chunk.abort.message)
        except Exception as error:  # the client hears of it
            self._error = error


def _facts(config: Config, where: Listen, engine: Engine) -> Facts:
    role, events = _ROLES[config.disaggregation_mode], config.kv_events
    handoff = None
    if role != "agg":
        offered = (where.advertised, config.bootstrap_port) if role == "prefill" else ("", 0)
        handoff = Handoff(config.transfer_backend, PROFILE, "tcp", *offered)
    ranks = config.local_ranks if events else ()
    return Facts(
        engine="sglang",
        version=VERSION,
        role=role,
        model_path=config.model_path,
        served_name=config.served_model_name,
        context_length=engine.context_length,
        tp=config.topology.tp,
        pp=config.topology.pp,
        dp=config.topology.dp,
        block_size=config.page_size,
        handoff=handoff,
        sources=tuple(EventSource(r, where.advertised, events.port + r, events.topic) for r in ranks if events),
        lora=config.lora,
        multimodal=config.multimodal,
    )


def _request(work: Work, bootstrap: Bootstrap | None) -> Request:
    return Request(work.request_id, work.tokens, work.dp_rank, work.max_tokens, bootstrap)


def _meeting(session: Session) -> Bootstrap:
    given = session.attributes
    try:
        return Bootstrap(Address(str(given[HOST]), int(given[PORT])), int(given[ROOM]))
    except (KeyError, TypeError, ValueError):
        names = ", ".join(sorted(given)) or "nothing"
        raise FailedError(
            "INVALID_ARGUMENT", f"session {session.session_id!r} is none of SGLang's: its attributes have {names}"
        ) from None


def _step(chunk: Chunk) -> Step:
    if chunk.abort and chunk.abort.status_code is not None:
        raise TransferError(chunk.abort.message)
    finish = "cancelled" if chunk.abort else "length"
    counts = (chunk.prompt_tokens, chunk.cached_tokens, chunk.completion_tokens)
    return Step(chunk.tokens, *counts, finish if chunk.finished else None)  # type: ignore[arg-type]
