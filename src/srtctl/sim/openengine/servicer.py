"""The two services, `Inference` and `Control`, over any engine.

Rules of the protocol that matter here: before a request is accepted its failure is a gRPC status, afterwards it is one
last `EngineError` on a stream that ends with OK. An `Abort` of a request that has ended succeeds; of one that was never
there it is NOT_FOUND. While draining, what was admitted runs to its end and what is new is UNAVAILABLE.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
from google.protobuf import json_format, struct_pb2

from srtctl.sim.openengine import schema
from srtctl.sim.openengine.admission import Admission
from srtctl.sim.openengine.engine import Engine, FailedError, Ready, RejectedError, Session, Step, Work
from srtctl.sim.openengine.info import Discovery
from srtctl.sim.openengine.schema import MESSAGES

log = logging.getLogger("openengine")

PROGRESS_SECONDS = 0.2
#: Values of `extra.request_type` that TensorRT-LLM's server knows; other engines read the first as well.
CONTEXT_ONLY, WHOLE = "context_only", "context_and_generation"


class Servicer:
    """The methods of both services; all of them may run at once."""

    def __init__(self, engine: Engine, discovery: Discovery, admission: Admission, ready: Callable[[], bool]) -> None:
        self._engine = engine
        self._discovery = discovery
        self._admission = admission
        self._ready = ready

    def inference(self) -> dict[str, Callable[..., Any]]:
        """RPC name to method, of `Inference`."""
        return {"Generate": self._generate}

    def control(self) -> dict[str, Callable[..., Any]]:
        """RPC name to method, of `Control`."""
        return {
            "GetServerInfo": lambda *_: self._discovery.server_info(),
            "GetModelInfo": self._model_info,
            "GetKvEventSources": lambda asked, _: self._discovery.event_sources(list(asked.data_parallel_ranks)),
            "Health": self._health,
            "Abort": self._abort,
            "Drain": self._drain,
        }

    def _health(self, *_: object) -> Any:
        state = schema.READY if self._ready() else schema.NOT_READY
        return MESSAGES["HealthResponse"](state=schema.DRAINING if self._admission.draining else state)

    def _model_info(self, asked: Any, context: grpc.ServicerContext) -> Any:
        info = self._discovery.model_info()
        if asked.model and asked.model not in (info.model_id, info.served_model_name, *info.served_model_aliases):
            context.abort(grpc.StatusCode.NOT_FOUND, f"model {asked.model!r} is not served here")
        return info

    def _generate(self, message: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        accepted = False
        try:
            work = self._work(message, context)
            with self._admission.admit(work.request_id):
                over: list[bool] = []
                # What a client gave up is aborted; a KV cache that waits to be fetched outlives its stream
                context.add_callback(lambda: None if over else self._engine.abort(work.request_id))
                for event in self._engine.generate(work):
                    accepted = True
                    if isinstance(event, Ready) or event.finish:
                        over.append(True)  # before the client hears of it, and leaves
                    yield from self._answers(work, event)
        except RejectedError as error:
            if accepted:
                raise AssertionError("an engine rejects before its first answer") from error
            context.abort(grpc.StatusCode[error.status], str(error))
        except FailedError as error:
            log.error("Failed: request_id=%s %s: %s", message.request_id, error.code, error)
            failure = MESSAGES["EngineError"](code=schema.ERRORS[error.code], message=str(error))
            yield MESSAGES["GenerateResponse"](request_id=message.request_id, error=failure)

    def _work(self, message: Any, context: grpc.ServicerContext) -> Work:
        """The request, if this engine has the role for it. Raises RejectedError."""
        facts = self._engine.facts
        if not message.request_id or message.WhichOneof("input") != "token_ids":
            raise RejectedError("a request has a request_id and token_ids")
        if message.media and not facts.multimodal:
            raise RejectedError("this engine takes no media", "UNIMPLEMENTED")
        if message.lora_name and not facts.lora:
            raise RejectedError("this engine has no LoRA adapters", "UNIMPLEMENTED")
        kind = json_format.MessageToDict(message.extra).get("request_type", WHOLE)
        if kind not in (CONTEXT_ONLY, WHOLE):
            raise RejectedError(f"extra.request_type must be {CONTEXT_ONLY} or {WHOLE}, not {kind!r}")
        work = Work(
            request_id=message.request_id,
            tokens=tuple(message.token_ids.ids),
            max_tokens=message.stopping.max_tokens if message.stopping.HasField("max_tokens") else None,
            dp_rank=_target(context),
            context_only=kind == CONTEXT_ONLY,
            session=_session(message.kv.session) if message.kv.HasField("session") else None,
        )
        wanted = "prefill" if work.context_only else "decode" if work.session else "agg"
        if wanted != facts.role:
            raise RejectedError(
                f"role mismatch: this is a request for {wanted}, this engine is {facts.role}", "FAILED_PRECONDITION"
            )
        return work

    def _abort(self, asked: Any, context: grpc.ServicerContext) -> Any:
        target = asked.WhichOneof("target")
        if target == "all_requests":
            for request_id in self._admission.running():
                self._engine.abort(request_id)
            return MESSAGES["AbortResponse"](status=schema.ABORTED)
        if target != "request_id":
            code = grpc.StatusCode.UNIMPLEMENTED if target else grpc.StatusCode.INVALID_ARGUMENT
            context.abort(code, "abort a request_id, or all_requests")
        state = self._admission.state(asked.request_id)
        if not state:
            context.abort(grpc.StatusCode.NOT_FOUND, f"request {asked.request_id!r} was never here")
        if state == "running":
            log.info("Abort: request_id=%s", asked.request_id)
            self._engine.abort(asked.request_id)
        return MESSAGES["AbortResponse"](status=schema.ABORTED if state == "running" else schema.ALREADY_FINISHED)

    def _drain(self, asked: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        if asked.stop_accepting_new_requests:
            self._admission.start_drain()
        limit = asked.deadline_ms / 1000 if asked.HasField("deadline_ms") else None
        started, aborted = time.monotonic(), False
        yield self._progress(schema.DRAIN_STARTED)
        while context.is_active() and not self._admission.wait_empty(PROGRESS_SECONDS, self._no_sessions):
            late = limit is not None and time.monotonic() - started >= limit
            if late and not asked.abort_after_deadline:
                error = MESSAGES["EngineError"](code=schema.ERRORS["INTERNAL"], message="not empty at the deadline")
                yield MESSAGES["DrainResponse"](error=error)
                return
            if late and not aborted:
                aborted = True
                for request_id in self._admission.running():
                    self._engine.abort(request_id)
            yield self._progress(schema.DRAIN_IN_PROGRESS)
        yield self._progress(schema.DRAIN_COMPLETE)

    def _answers(self, work: Work, event: Step | Ready) -> Iterator[Any]:
        """The messages of one event: tokens and, with the last, the end and the usage of the request."""
        answer = MESSAGES["GenerateResponse"]
        if isinstance(event, Ready):
            ready = MESSAGES["PrefillReady"](kv_session=self._reference(event.session))
            yield answer(request_id=work.request_id, prefill_ready=ready, usage=_usage(event.prompt_tokens, 0, 1))
            return
        if event.tokens:
            tokens = [MESSAGES["TokenInfo"](token_id=token) for token in event.tokens]
            yield answer(request_id=work.request_id, token=MESSAGES["TokenOutput"](output_index=0, tokens=tokens))
        if event.finish:
            finished = MESSAGES["GenerationFinished"](output_index=0, reason=schema.FINISH[event.finish])
            usage = _usage(event.prompt_tokens, event.cached_tokens, event.completion_tokens)
            yield answer(request_id=work.request_id, finished=finished, usage=usage)

    def _reference(self, session: Session) -> Any:
        """The session on the wire: what only the engines read, and where it is once more for everybody."""
        handoff = self._engine.facts.handoff
        assert handoff is not None, "an engine that hands over says how"
        endpoint = MESSAGES["KvEndpoint"](host=handoff.host, port=handoff.port, protocol=handoff.protocol)
        return MESSAGES["KvSessionRef"](
            session_id=session.session_id,
            transfer_backend=handoff.backend,
            endpoints=[endpoint],
            dp_rank=session.dp_rank,
            attributes_struct=json_format.ParseDict(dict(session.attributes), struct_pb2.Struct()),
            handoff_profile=handoff.profile,
        )

    def _no_sessions(self) -> bool:
        return not self._engine.open_sessions()

    def _progress(self, state: int) -> Any:
        return MESSAGES["DrainResponse"](
            state=state,
            in_flight_requests=len(self._admission.running()),
            open_kv_sessions=self._engine.open_sessions(),
        )


def _target(context: grpc.ServicerContext) -> int | None:
    values = [str(value) for key, value in context.invocation_metadata() if key == schema.TARGET_DP_RANK]
    if len(values) > 1 or any(not value.isdecimal() for value in values):
        raise RejectedError(f"{schema.TARGET_DP_RANK} must be one number, not {', '.join(values)}")
    return int(values[0]) if values else None


def _session(message: Any) -> Session:
    return Session(message.session_id, message.dp_rank, json_format.MessageToDict(message.attributes_struct))


def _usage(prompt: int, cached: int, completion: int) -> Any:
    return MESSAGES["Usage"](
        prompt_tokens=prompt,
        completion_tokens=completion,
        total_tokens=prompt + completion,
        cached_prompt_tokens=cached,
    )
