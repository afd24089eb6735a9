"""How job.sbatch says which image the steps below a line run in, what is mounted there, and with which options of srun."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from srtctl.diagnostics import Diagnostic, DiagnosticError
from srtctl.plan.model import Client, Plan, Service, Worker
from srtctl.plan.shell import option, word

#: What a mount cannot hold: it ends a path or a mount, or a field of the table that enroot makes of them.
_ENDS_A_PATH = re.compile(r"[,:\s]")


@dataclass(frozen=True, slots=True)
class Step:
    """A line of job.sbatch that starts something, what it is about, and for whom."""

    line: str
    comment: str
    subject: Worker | Service | Client


def introduction(plan: Plan) -> tuple[str, str]:
    """The lines before all steps: the runtime, with the variables that an image must not change, and the mounts.

    The run's own folder is always among them. Both are empty where processes run on the nodes themselves.
    """
    if plan.runtime.container == "none":
        return "", ""
    mounts = [word(mount) for mount in ("${RUN_DIR}:${RUN_DIR}", *plan.runtime.mounts)]
    runtime = " ".join(["containers", plan.runtime.container, *sorted(plan.environment)])
    return runtime, " \\\n  ".join(["mounts", *mounts])


def settings(plan: Plan, steps: Iterable[Step]) -> Iterator[tuple[list[str], Step]]:
    """Each step with the lines that must stand before it: only what changes there."""
    before: tuple[str, str] = "", "with_options"
    for step in steps:
        now = _place(plan, step.subject), _options(step.subject)
        yield [line for line, old in zip(now, before, strict=True) if line != old], step
        before = now


def check_run_dir(plan: Plan, run_dir: str) -> None:
    """Raises DiagnosticError where containers could not see `run_dir`."""
    if plan.runtime.container != "none" and (ends := _ENDS_A_PATH.search(run_dir)):
        message = f"the run's folder {run_dir} holds {ends[0]!r}, so that it cannot be mounted"
        raise DiagnosticError([Diagnostic("render/run-dir", message, hint="use a folder without it")])


def _place(plan: Plan, subject: Worker | Service | Client) -> str:
    if plan.runtime.container == "none":
        return ""
    if not subject.image:
        return "on_the_node"
    changed = not isinstance(subject, Client) and subject.setup
    return f"{'in_writable_image' if changed else 'in_image'} {word(subject.image)}"


def _options(subject: Worker | Service | Client) -> str:
    options: Mapping[str, str | None] = subject.srun_options if isinstance(subject, Worker) else {}
    return " ".join(["with_options", *(option(name, value) for name, value in options.items())])
