"""Whoever dies is named: one process of every kind that an example has is killed, in each example of these engines."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from srtctl.plan.model import Plan, Process, Worker
from tests.e2e.conftest import Sandbox, wait_until
from tests.e2e.test_direct_dispatch import reference
from tests.support import EXAMPLES, REPOSITORY, example_id, plan_of

pytestmark = pytest.mark.e2e

KILLED_IN = (
    "sglang-frontends-2n",
    "trtllm-2n",
    "trtllm-tp-2n",
    "vllm-2n",
    "vllm-direct-2n",
    "vllm-hybrid-dp-2n",
    "vllm-tp-2n",
)
RECIPES = {example_id(path): path for path in EXAMPLES if example_id(path) in KILLED_IN}


def kinds(plan: Plan) -> Iterator[tuple[tuple[object, ...], str, str]]:
    """Every process with its part, and what kind it is: two of one kind differ in nothing but their numbers."""
    for service in plan.services:
        yield (service.name,), service.name, "service"
    for frontend in plan.frontends:
        yield ("frontend",), frontend.name, "frontend"
    for worker in plan.workers:
        for process in worker.processes:
            yield (worker.role, process.node_rank > 0, bool(process.serves)), process.name, "engine"
            for name in further_ranks(worker, process):
                yield (worker.role, "rank"), name, "engine"
            if process.sidecar:
                yield (worker.role, process.sidecar.mode), process.name, "sidecar"


def further_ranks(worker: Worker, process: Process) -> Iterator[str]:
    """The engine's processes on that node but the first: only an MPI job has them."""
    if worker.launcher == "mpi":
        before = sum(len(other.gpus) for other in worker.processes if other.node_rank < process.node_rank)
        yield from (f"{process.name}.rank{rank}" for rank in range(before + 1, before + len(process.gpus)))


def victims() -> Iterator[tuple[str, str, str]]:
    """Example, process, part: the last of each kind, which is seldom on the job's first node."""
    for example, path in RECIPES.items():
        last = {kind: (name, part) for kind, name, part in kinds(plan_of(path))}
        yield from ((example, *victim) for victim in dict.fromkeys(last.values()))


VICTIMS = list(victims())


def test_every_example_is_tried() -> None:
    assert sorted(RECIPES) == sorted(KILLED_IN)


@pytest.mark.parametrize(("example", "process", "part"), VICTIMS, ids=["-".join(row) for row in VICTIMS])
def test_whoever_dies_is_named(sandbox: Sandbox, example: str, process: str, part: str) -> None:
    sets = reference(sandbox) if example == "vllm-direct-2n" else []
    run = sandbox.apply(RECIPES[example].relative_to(REPOSITORY), *sets, "--set", "checks=false")["run"]
    folder = sandbox.run_dir(run)
    job_id = (folder / "state/job_id").read_text().strip()
    try:
        pid, node = started(folder, process, part)
        os.kill(pid, signal.SIGKILL)
        wait_until("its end", lambda: '"event":"job_ended"' in (folder / "events/job.jsonl").read_text())
        wait_until("nothing of it is left", lambda: not sandbox.left_over(job_id))
    finally:
        sandbox.cli("cancel", run, "--wait", code=None)
    words = f"{process} {part} on {node} was killed by SIGKILL"
    end, status = json.loads((folder / "state/end.json").read_text()), sandbox.cli.json("status", run)
    assert (end["state"], end["exit_code"], end["cause"]) == ("failed", 1, words)
    assert (status["phase"], status["outcome"], status["cause"]) == ("ended", "failed", words)
    others = [
        place for place in status["parts"] if place["part"] and (place["process"], place["part"]) != (process, part)
    ]
    assert [place for place in others if not stopped(place) and not may_notice(place, process, part)] == [], told(
        folder
    )
    # Also nginx' workers are gone, whose environment tells nothing
    assert [place for place in singles(folder) if answers(*place)] == []


def stopped(place: dict[str, Any]) -> bool:
    return place["state"] == "stopped" and place["stop_seconds"] is not None


def may_notice(place: dict[str, Any], process: str, part: str) -> bool:
    """Who computes together with the dead process, or holds a lease of the dead service, may end before it is stopped."""
    together = part == "service" or place["process"].partition(".")[0] == process.partition(".")[0]
    return bool(place["state"] == "exited" and together)


def told(folder: Path) -> str:
    """All events of the run."""
    return "\n".join(path.read_text() for path in sorted((folder / "events").glob("*.jsonl")))


def started(folder: Path, process: str, part: str) -> tuple[int, str]:
    """The process id, and the name of the node on which it runs."""
    names = dict(line.split("\t")[:2] for line in (folder / "state/nodes.tsv").read_text().splitlines())
    [found] = [
        (event["pid"], names[path.stem.removeprefix("node-")])
        for path in (folder / "events").glob("node-*.jsonl")
        for event in map(json.loads, path.read_text().splitlines())
        if event["event"] == "started" and (event["process"], event["part"]) == (process, part)
    ]
    return found


def singles(folder: Path) -> list[tuple[str, int]]:
    """Address and port of each service and frontend."""
    plan: dict[str, Any] = json.loads((folder / "plan.json").read_text())
    table = [line.split("\t") for line in (folder / "state/nodes.tsv").read_text().splitlines()]
    addresses = {int(index): address for index, _, address in table}
    return [(addresses[single["node"]], single["port"]) for single in (*plan["services"], *plan["frontends"])]


def answers(address: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((address, port)) != errno.ECONNREFUSED
