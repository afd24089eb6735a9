"""Gather what is known about a failure, and look it up: a failed target gets its diagnosis, if there is one."""

from __future__ import annotations

from dataclasses import replace

from srtctl.checks import engine_info, logs
from srtctl.checks.context import Context
from srtctl.checks.deployment import Process
from srtctl.checks.diagnosis import diagnose
from srtctl.checks.model import FAIL, Target, TargetResult
from srtctl.checks.net import NetError
from srtctl.checks.symptom import Symptom

_ENGINE_SECONDS = 2.0


def explained(context: Context, check: str, result: TargetResult) -> TargetResult:
    """The result with its diagnosis, and with what the engine says of itself, if it failed; else as it is."""
    if result.verdict != FAIL:
        return result
    symptom = gather(context, check, result)
    evidence = dict(result.evidence)
    if symptom.engine:
        evidence["engine"] = symptom.engine
    return replace(result, evidence=evidence, diagnosis=diagnose(symptom))


def gather(context: Context, check: str, result: TargetResult) -> Symptom:
    """Everything that the table looks at: the result, its process's logs, the frontend's log, the engine's own word."""
    deployment, target = context.deployment, result.target
    frontends = [single for single in deployment.singles if "frontend" in single.parts]
    frontend = [line for single in frontends for line in logs.lines(deployment.run_dir, f"{single.name}.frontend")]
    if not target.worker:
        return Symptom(check, result.message, evidence=result.evidence, frontend=frontend)
    worker, process = deployment.worker(target.worker), deployment.process_of(target)
    sidecar = logs.lines(deployment.run_dir, f"{process.name}.sidecar")
    leader_sidecar = [] if process.name == worker.leader else logs.lines(deployment.run_dir, f"{worker.leader}.sidecar")
    return Symptom(
        check,
        result.message,
        worker=worker.name,
        dp_rank=target.dp_rank,
        role=worker.role,
        ordinary_dp=worker.dp_size > 1 and not worker.dp_attention,
        process=process.name,
        node=deployment.nodes[process.node].name,
        evidence=result.evidence,
        sidecar=sidecar + leader_sidecar,
        frontend=_about(frontend, target),
        engine_log=logs.lines(deployment.run_dir, f"{worker.leader}.engine"),
        engine=_engine(context, process),
        dynamo=engine_info.dynamo_version(),
    )


def _about(frontend: list[str], target: Target) -> list[str]:
    """The frontend's lines, without complaints about the KV events of other ranks."""
    mark = "expected_dp_rank="
    return [line for line in frontend if mark not in line or f"{mark}{target.dp_rank} " in line]


def _engine(context: Context, process: Process) -> str:
    """What the engine process says of itself, in one line; empty if it does not say."""
    host = context.deployment.nodes[process.node].address
    for purpose, ask in (("grpc", engine_info.over_grpc), ("http", engine_info.over_http)):
        if purpose in process.listens:
            try:
                return engine_info.facts(ask(host, process.listens[purpose], _ENGINE_SECONDS))
            except NetError:
                continue
    return ""
