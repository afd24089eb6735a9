"""Why a run failed, in words: the first failure in its events, its checks, or what Slurm says about the job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from srtctl.checks.diagnosis import diagnose
from srtctl.checks.model import Diagnosis
from srtctl.checks.symptom import BEFORE, Symptom
from srtctl.runs.events import Event
from srtctl.runs.model import CheckResult, Outcome, RunFiles, TargetResult
from srtctl.slurm.states import JobState
from srtctl.slurm.words import exit_in_words


class Failure(NamedTuple):
    """What failed, in words, and the log that tells more (a name `srtctl logs` takes; empty: the job's own log).

    `diagnosis` is what is behind it, where that is known.
    """

    words: str
    look_at: str = ""
    diagnosis: Diagnosis | None = None


class Ending(NamedTuple):
    """How a job that left no end record ended, by Slurm's account."""

    outcome: Outcome
    words: str


def _port_busy(event: Event, where: str) -> Failure:
    holder = event.text("holder")
    words = f"port {event.text('port')}{where} ({event.text('purpose')} of {event.text('owner')}) is already taken"
    return Failure(words + (f" by {holder}" if holder else ""))


def _exited(event: Event, where: str) -> Failure:
    process, part, last = event.text("process"), event.text("part"), event.text("last")
    words = f"{process} {part}".rstrip() + f"{where} exited with {event.text('code')}"
    return Failure(words + (f": {last}" if last else ""), f"{process}.{part}".rstrip("."))


def _not_listening(event: Event, where: str) -> Failure:
    process = event.text("process")
    return Failure(f"{process}{where} did not listen on port {event.text('port')} in time", process)


def _gate_failed(event: Event, _where: str) -> Failure:
    return Failure(f"the deployment did not become ready: {event.text('reason') or 'no reason was given'}")


def _client_ended(event: Event, where: str) -> Failure:
    process = event.text("process")
    return Failure(f"the {process}{where} exited with {event.text('code')}", process)


def _step_ended(event: Event, _where: str) -> Failure:
    return Failure(f"step {event.text('step')} ended with {event.text('code')}", event.text("step"))


# The events that are failures by themselves. Where the runtime gave its own `words`, those are used.
FAILURES: dict[str, Callable[[Event, str], Failure]] = {
    "port_busy": _port_busy,
    "exited": _exited,
    "not_listening": _not_listening,
    "gate_failed": _gate_failed,
}
# Ends that are failures where nothing above came to pass: a client that lost what it talks to ends first.
ENDS: dict[str, Callable[[Event, str], Failure]] = {"client_ended": _client_ended, "step_ended": _step_ended}


def first_failure(files: RunFiles, *, failed: bool) -> Failure | None:
    """The first thing that went wrong by itself.

    What ends after the job began to stop is a consequence; it counts only where the run is known to have `failed` and
    nothing came before (the nodes' clocks differ a little). A client's end says less than the end of what it talks to,
    a step's less than the end of a process in it.
    """
    began = min((event.ts for event in files.events if event.name == "stopping"), default=float("inf"))
    told = [event for event in files.events if event.name in FAILURES]
    ends = [[event for event in files.events if event.name == name and event.text("code") != "0"] for name in ENDS]
    for events in (told, *ends):
        before = [event for event in events if event.ts <= began]
        for event in (before or events) if failed else before:
            where = "" if event.node is None else f" on {files.node_name(event.node)}"
            failure = (FAILURES | ENDS)[event.name](event, where)
            words = event.text("words") or failure.words
            return Failure(words, failure.look_at, _diagnosis(files, event, words))
    return None


def _diagnosis(files: RunFiles, event: Event, words: str) -> Diagnosis | None:
    """What is behind a process that ended or never listened, or behind a gate that gave up (its checks found it)."""
    if event.name == "gate_failed":
        return first_diagnosis(check_results(files.checks))
    if event.name not in ("exited", "not_listening"):
        return None
    engine, _, dynamo = event.text("engine").partition("; ")
    process = f"{event.text('process')} {event.text('part')}".rstrip()
    said = f"{words} {event.text('last')}" if event.name == "not_listening" else words
    return diagnose(
        Symptom(BEFORE, said, process=process, node=files.node_name(event.node), engine=engine, dynamo=dynamo)
    )


def check_results(checks: Mapping[str, Any] | None) -> tuple[CheckResult, ...]:
    """The checks of checks.json."""
    return tuple(
        CheckResult(
            name=check.get("name", "?"),
            verdict=check.get("verdict", "?"),
            on_failure=check.get("on_failure", "fail"),
            reason=check.get("reason") or "",
            targets=tuple(
                TargetResult(
                    target_label(target),
                    target.get("verdict", "?"),
                    target.get("message") or "",
                    Diagnosis(**target["diagnosis"]) if target.get("diagnosis") else None,
                )
                for target in check.get("targets") or ()
            ),
        )
        for check in (checks or {}).get("checks") or ()
    )


def target_label(target: dict[str, Any]) -> str:
    """`agg-0 rank 1`, `agg-0`, or nothing for a check of the whole deployment."""
    worker, rank = target.get("worker") or "", target.get("dp_rank")
    return f"{worker} rank {rank}".strip() if rank is not None else worker


def first_diagnosis(checks: tuple[CheckResult, ...]) -> Diagnosis | None:
    """The diagnosis of the first failed check that has one."""
    failed = [target for check in checks if check.verdict == "fail" for target in check.targets]
    return next((target.diagnosis for target in failed if target.diagnosis), None)


def failed_checks(checks: tuple[CheckResult, ...]) -> str:
    """The first failure of the checks that can fail a run, and how many more there are; empty when none failed."""
    found: list[str] = []
    for check in checks:
        if check.verdict != "fail" or check.on_failure != "fail":
            continue
        targets = [t for t in check.targets if t.verdict == "fail"]
        said = [t.sentence for t in targets] or [check.reason]
        found += [f"check {check.name} failed" + (f": {words}" if words else "") for words in said]
    if not found:
        return ""
    return found[0] + (f" (and {len(found) - 1} more)" if len(found) > 1 else "")


# Slurm's final state -> how the run ended. `{nodes}` and `{exit}` are filled in.
ENDINGS: dict[str, Ending] = {
    "BOOT_FAIL": Ending("node_failure", "a node failed to boot{nodes}"),
    "CANCELLED": Ending("cancelled", "cancelled through Slurm{by}"),
    "DEADLINE": Ending("time_limit", "Slurm ended it at its deadline"),
    "FAILED": Ending("failed", "the job script failed{exit}"),
    "LAUNCH_FAILED": Ending("failed", "Slurm could not launch it{nodes}"),
    "NODE_FAIL": Ending("node_failure", "Slurm lost a node of the job{nodes}"),
    "OUT_OF_MEMORY": Ending("failed", "it ran out of memory and was killed{nodes}"),
    "PREEMPTED": Ending("cancelled", "a job of higher priority preempted it"),
    "RECONFIG_FAIL": Ending("node_failure", "a node could not be reconfigured for it{nodes}"),
    "REVOKED": Ending("cancelled", "another cluster of the federation took it over"),
    "TIMEOUT": Ending("time_limit", "it reached its time limit"),
}
# Endings in which the job script sees only a TERM: then Slurm's account beats the script's "cancelled".
SLURM_KNOWS_BETTER = frozenset(ENDINGS) - {"CANCELLED", "FAILED"}


def slurm_ending(slurm: JobState, last_event: str) -> Ending:
    """How a job ended that left no record of its own; `last_event` is the last fact it reported."""
    if slurm.kind == "known" and (ending := ENDINGS.get(slurm.state)):
        if slurm.state == "FAILED" and slurm.exit_code == (3, 0):
            return Ending("checks_failed", "the checks failed")
        script = exit_in_words(slurm.exit_code)
        words = ending.words.format(
            nodes=f" ({slurm.nodes})" if slurm.nodes else "",
            by=f" by user id {slurm.by}" if slurm.by else "",
            exit=f": {script}" if script else "",
        )
        return Ending(
            ending.outcome, words if last_event or ending.outcome != "cancelled" else f"{words} before it started"
        )
    if slurm.kind == "known":
        return Ending("lost", f"Slurm reports {slurm.state}, but the job left no end record (state/end.json)")
    last = f"the last it reported was `{last_event}`" if last_event else "it never reported anything"
    return Ending("lost", f"Slurm no longer knows the job and it left no end record; {last}")
