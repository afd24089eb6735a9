"""Gather what is known about a failure, and look it up: a failed target gets its diagnosis, if there is one."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache

from srtctl.checks import engine_info, logs
from srtctl.checks.context import Context
from srtctl.checks.deployment import Deployment, Process, Worker
from srtctl.checks.diagnosis import diagnose
from srtctl.checks.model import FAIL, Target, TargetResult
from srtctl.checks.net import NetError
from srtctl.checks.stack import dynamo_version
from srtctl.checks.symptom import Symptom

_ENGINE_SECONDS = 2.0
_DIRECT = "direct dispatch: connect failed"
_LOG_LINES = 2000  # of the end of each log; the fault has just shown

Read = Callable[[str], Sequence[str]]


def explained(context: Context, check: str, results: Sequence[TargetResult]) -> list[TargetResult]:
    """The results; each failed one with its diagnosis, if there is one, and with what its engine says of itself."""
    read = lru_cache(maxsize=None)(lambda name: logs.lines(context.deployment.run_dir, name)[-_LOG_LINES:])
    with ThreadPoolExecutor(context.limits.parallel) as pool:
        return list(pool.map(lambda result: _explained(context, check, result, read), results))


def _explained(context: Context, check: str, result: TargetResult, read: Read) -> TargetResult:
    if result.verdict != FAIL:
        return result
    symptom = gather(context, check, result, read)
    evidence = dict(result.evidence)
    if symptom.engine:
        evidence["engine"] = symptom.engine
    return replace(result, evidence=evidence, diagnosis=diagnose(symptom))


def gather(context: Context, check: str, result: TargetResult, read: Read) -> Symptom:
    """Everything that the table looks at: the result, its process's logs, the frontend's log, the engine's own word.

    `read` gives the last lines of a log by name.
    """
    deployment, target = context.deployment, result.target
    frontends = [single for single in deployment.singles if "frontend" in single.parts]
    frontend = [line for single in frontends for line in read(f"{single.name}.frontend")]
    if not target.worker:
        return Symptom(check, result.message, evidence=result.evidence, frontend=frontend)
    worker, process = deployment.worker(target.worker), deployment.process_of(target)
    sidecar = [*read(f"{process.name}.sidecar")]
    if process.name != worker.leader:
        sidecar += read(f"{worker.leader}.sidecar")
    return Symptom(
        check,
        result.message,
        worker=worker.name,
        dp_rank=target.dp_rank,
        role=worker.role,
        ordinary_dp=worker.engine == "sglang" and worker.dp_size > 1 and not worker.dp_attention,
        process=process.name,
        node=deployment.nodes[process.node].name,
        evidence=result.evidence,
        sidecar=sidecar,
        frontend=_about(frontend, target, worker),
        engine_log=_engine_log(deployment, target, read),
        engine=_engine(context, process),
        dynamo=dynamo_version(),
    )


def _about(frontend: Sequence[str], target: Target, worker: Worker) -> list[str]:
    """The frontend's lines, without complaints about the KV events of other ranks, or the gRPC servers of other workers."""
    mark, place = "expected_dp_rank=", re.compile(rf"{re.escape(worker.direct)}(?!\d)")
    return [
        line
        for line in frontend
        if (mark not in line or f"{mark}{target.dp_rank} " in line)
        and (_DIRECT not in line or (worker.direct and place.search(line)))
    ]


def _engine(context: Context, process: Process) -> str:
    """What the engine process says of itself, in one line; empty if it does not say."""
    host = context.deployment.nodes[process.node].address
    for purpose, ask in (("grpc", engine_info.described), ("http", _over_http)):
        if purpose in process.listens:
            try:
                return ask(host, process.listens[purpose], _ENGINE_SECONDS)
            except NetError:
                continue
    return ""


def _over_http(host: str, port: int, timeout: float) -> str:
    return engine_info.facts(engine_info.over_http(host, port, timeout))


def _engine_log(deployment: Deployment, target: Target, read: Read) -> list[str]:
    """The log of the engine that a target's requests enter; before it, of a prefill target, those of the decode engines,
    where a transfer fails."""
    mine, found = deployment.server_of(target), []
    if deployment.worker(target.worker).role == "prefill":
        decoding = (worker for worker in deployment.workers if worker.role == "decode")
        found = [line for worker in decoding for p in worker.processes if p.serves for line in read(f"{p.name}.engine")]
    return [*found, *read(f"{mine.name}.engine")]
