"""The plan as people read it; the snapshots lie in __snapshots__ (`pytest --snapshot-update` writes them)."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from plans import disaggregated
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from srtctl.plan.model import Plan
from srtctl.plan.text import plan_text
from tests.support import EXAMPLES, REPOSITORY, example_id, plan_of


class Text(SingleFileSnapshotExtension):
    """One text file a snapshot."""

    _write_mode = WriteMode.TEXT
    file_extension = "txt"


@pytest.mark.parametrize("nodes", [8, 64])
def test_many_nodes(nodes: int, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    assert plan_text(disaggregated(tmp_path, nodes)) == snapshot(extension_class=Text)


def test_two_nodes(snapshot: SnapshotAssertion) -> None:
    example = REPOSITORY / "examples" / "agg" / "sglang-attention-dp-2n.yaml"
    assert plan_text(plan_of(example)) == snapshot(extension_class=Text)


@pytest.mark.parametrize("example", EXAMPLES, ids=example_id)
def test_colour_is_only_paint(example: Path) -> None:
    plan = plan_of(example)
    assert "\x1b" not in plan_text(plan)
    assert re.sub(r"\x1b\[\d+m", "", plan_text(plan, color=True)) == plan_text(plan)


def test_every_gpu_of_every_node_has_its_place(tmp_path: Path) -> None:
    plan = disaggregated(tmp_path, 64)
    lines = plan_text(plan).splitlines()
    start = lines.index("node  GPUs") + 1
    for process in (p for w in plan.workers for p in w.processes):
        cell = f"{process.gpus[0]}-{process.gpus[-1]} {process.name} "
        assert f" {cell}" in f"{lines[start + process.node]} "
    assert lines[start + plan.nodes] == ""


def test_free_gpus_and_nodes_without_workers(tmp_path: Path) -> None:
    plan = disaggregated(tmp_path, 8)
    decode = replace(plan, workers=plan.workers[:1], nodes=3)
    lines = plan_text(decode).splitlines()
    at = lines.index("node  GPUs")
    assert [re.split(r"  +", line.strip(), maxsplit=1)[1] for line in lines[at + 1 : at + 4]] == [
        "0-3 prefill-0.0 │ 4-7 free  serving sidecar, etcd, frontend-0",
        "0-7 free",
        "0-7 free",
    ]
    assert "3 nodes of 8 GPUs, 4 of 24 used" in lines[0]


def test_every_claim_is_in_the_table(tmp_path: Path) -> None:
    plan = disaggregated(tmp_path, 16)
    table = plan_text(plan).split("\n\n")[2].splitlines()
    total = 0
    nodes = 0
    for line in table[1:]:
        where = line[: table[0].index("ports")].strip()
        if where:
            nodes = len(expand(where))
        spans = line[table[0].index("ports") : table[0].index("purpose")].split(",")
        total += nodes * sum(len(expand(span.strip())) for span in spans)
    assert total == sum(claim.count for claim in plan.claims)


def expand(text: str) -> range:
    """`4`, `0-3` or `0-12:4`."""
    first, last, step = re.fullmatch(r"(\d+)(?:-(\d+))?(?::(\d+))?", text).groups()  # type: ignore[union-attr]
    return range(int(first), int(last or first) + 1, int(step or 1))


def commands(plan: Plan) -> dict[str, str]:
    """The commands of the text by title."""
    section = next(s for s in plan_text(plan).split("\n\n") if s.startswith("commands"))
    found = re.findall(r"^# (.*)\n((?:[^#\n].*\n?)+)", section + "\n", re.MULTILINE)
    return {title.split(",")[0]: text for title, text in found}


@pytest.mark.parametrize("example", EXAMPLES, ids=example_id)
def test_a_copied_command_is_the_planned_one(example: Path, tmp_path: Path) -> None:
    """A shell that has bound the addresses, as the job does, runs each with the planned words and variables."""
    plan = plan_of(example, overrides=("environment.MOTTO=a 'b' \"c\"",))
    shown = commands(plan)
    for program in {p.argv[0] for w in plan.workers for p in w.processes}:
        echo = tmp_path / program
        echo.write_text('#!/bin/sh\nprintf "%s\\n" "$0" "$@"; env | grep -vE "^(OLDPWD|PATH|PWD|SHLVL|_)=" | sort\n')
        echo.chmod(0o755)

    def bound(text: str) -> str:
        return re.sub(r"\$\{NODE_ADDR\[(\d+)\]\}", r"10.0.0.\1", text).replace("${RUN_DIR}", "/run")

    addresses = " ".join(f"10.0.0.{node}" for node in range(plan.nodes))
    processes = [p for w in plan.workers for p in w.processes if f"{p.name} on node {p.node}" in shown]
    assert processes
    for process in processes:
        text = shown[f"{process.name} on node {process.node}"]
        script = f"NODE_ADDR=({addresses})\nRUN_DIR=/run\nPATH={shlex.quote(str(tmp_path))}:$PATH\n{text}"
        clean = {"PATH": os.environ["PATH"]}
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, env=clean)
        env = sorted(f"{k}={bound(v)}" for k, v in process.env.items())
        assert done.stdout.splitlines()[1:] == [*map(bound, process.argv[1:]), *env]


def test_what_differs_in_commands_that_are_not_shown(tmp_path: Path) -> None:
    text = plan_text(disaggregated(tmp_path, 64))
    assert "# the same on 23 more: decode-[1-23].0\n#   but for the values of --dist-init-addr, DYN_EVENT" in text
    assert text.count("python3 -m sglang.launch_server") == 3


def test_images_mounts_and_setup_are_said(tmp_path: Path) -> None:
    plan = disaggregated(tmp_path, 8)
    plain = plan_text(plan)
    assert not any(line.startswith(("image", "mounts", "set-up")) for line in plain.splitlines())
    setup = (("bash", "/configs/a b.sh"),)
    inside = replace(
        plan,
        workers=tuple(replace(w, image="engine.sqsh", setup=setup) for w in plan.workers),
        services=tuple(replace(s, image="tools.sqsh") for s in plan.services),
        runtime=replace(plan.runtime, container="pyxis", mounts=("/models:/models", "/a:/b:ro")),
    )
    added = [line for line in plan_text(inside).splitlines() if line not in plain.splitlines()]
    services = ", ".join(s.name for s in plan.services)
    assert added == [
        f"image      tools.sqsh (pyxis): {services}",
        "image      engine.sqsh (pyxis): prefill, decode",
        "mounts     /models:/models, /a:/b:ro",
        "set-up     bash '/configs/a b.sh'",
    ]
