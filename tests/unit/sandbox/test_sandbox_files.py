"""Image, record, status text and the command line's exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from typer.testing import CliRunner

from srtctl.cli.sandbox import app
from srtctl.sandbox import record
from srtctl.sandbox.errors import SandboxError
from srtctl.sandbox.image import build_image, build_model
from srtctl.sandbox.layout import Layout
from srtctl.sandbox.lifecycle import Sandbox
from srtctl.sandbox.mounts import mount_points, unmount_below
from srtctl.sandbox.record import Record
from srtctl.sandbox.spec import SandboxSpec, netns_shape
from srtctl.sandbox.stack import Stack
from srtctl.sandbox.status import DaemonStatus, NodeStatus, SandboxStatus, status
from srtctl.sandbox.view import status_data, status_text, up_lines

SHAPE = netns_shape(SandboxSpec("dev", nodes=1), IPv4Network("10.213.0.0/24"), "vm", 26624)


def test_the_image_runs_without_the_rest_of_srtctl(tmp_path: Path) -> None:
    image = tmp_path / "image"
    build_image(image)
    assert sorted(path.name for path in (image / "srtctl").iterdir()) == ["__init__.py", "checks", "sim"]
    assert not list(image.rglob("__pycache__"))
    code = "import srtctl.sim, srtctl.checks, sys; print(srtctl.__file__)"
    done = subprocess.run(
        [sys.executable, "-B", "-c", code], env={"PYTHONPATH": str(image)}, text=True, capture_output=True, check=True
    )
    assert done.stdout.strip() == str(image / "srtctl" / "__init__.py")


def test_the_engines_programs_are_in_the_images_bin(tmp_path: Path) -> None:
    image = tmp_path / "image"
    build_image(image)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    env = {"PATH": f"{image / 'bin'}:{tmp_path / 'bin'}:/usr/bin:/bin", "PYTHONPATH": str(image)}
    for program, said in (("vllm", "vllm serve: error"), ("vllm-rs", "vllm-rs serve: error")):
        done = subprocess.run(
            [program, "serve", "--no-such-flag"], env=env, text=True, capture_output=True, check=False
        )
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_a_model_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    build_image(layout.image)
    (layout.image / "srtctl" / "sim" / "model.py").write_text("raise SystemExit('no tokenizers here')\n")
    (tmp_path / "stack" / "bin").mkdir(parents=True)
    python = tmp_path / "stack" / "bin" / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    with pytest.raises(SandboxError, match=r"srtctl\.sim\.model") as caught:
        build_model(layout, Stack(tmp_path / "stack"))
    assert "no tokenizers here" in caught.value.detail


def test_record_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "sandbox.json"
    written = Record(SHAPE, made_data_dir=True, made_netns_dir=False)
    record.write(path, written)
    assert record.read(path) == written
    assert [p.name for p in tmp_path.iterdir()] == ["sandbox.json"]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"shape": {"name": "dev"}}'])
def test_a_record_that_is_none_reads_as_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "sandbox.json"
    path.write_text(text)
    assert record.read(path) is None
    assert record.read(tmp_path / "missing") is None


def found(*, up: bool = True, running: bool = True, state: str = "idle") -> SandboxStatus:
    node = NodeStatus("sandbox-0", "10.213.0.2", state)
    daemon = DaemonStatus("slurmctld", 17, running)
    profile = Path("/s/dev/srtslurm.yaml") if up else None
    return SandboxStatus("dev", Path("/s/dev"), up, SHAPE, profile, (node,), (daemon,))


@pytest.mark.parametrize(
    ("seen", "healthy", "word"),
    [
        (found(), True, "up"),
        (found(state="down*"), True, "up"),  # Slurm's word for a node is for people to read
        (found(running=False), False, "broken"),
        (found(state="unknown"), False, "broken"),
        (found(up=False), False, "half booted"),
    ],
)
def test_status_verdict(seen: SandboxStatus, healthy: bool, word: str) -> None:
    assert seen.healthy == healthy
    assert status_text(seen).splitlines()[0] == f"sandbox   dev: {word}"
    data = status_data(seen)
    assert data["healthy"] == healthy
    assert json.loads(json.dumps(data)) == data


def test_the_last_line_of_up_is_the_next_command() -> None:
    lines = up_lines(Sandbox(SHAPE, Path("/s/dev"), Path("/s/dev/srtslurm.yaml"), booted=True))
    assert lines == [
        "sandbox `dev` is up: 1 node with 1 simulated GPU each, netns 10.213.0.0/24",
        "next: SRTCTL_SANDBOX=dev srtctl apply RECIPE",
    ]


def test_status_of_nothing(tmp_path: Path) -> None:
    seen = status("dev", {"SRTCTL_DATA_DIR": str(tmp_path)})
    assert (seen.up, seen.healthy, seen.nodes, seen.daemons) == (False, False, (), ())


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["up", "--nodes", "0"], 2, "at least 1 node"),
        (["up", "--name", "No"], 2, "not a sandbox name"),
        (["up", "--network", "wifi"], 2, "wifi"),
        (["up"], 2, "bytes too long"),
        (["status"], 1, "there is no sandbox `default`"),
        (["down"], 0, "there is no sandbox `default`"),
    ],
)
def test_exit_codes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, words: str
) -> None:
    stack = tmp_path / "stack" / "bin"
    stack.mkdir(parents=True)
    (stack / "python3").symlink_to(sys.executable)
    monkeypatch.setattr("srtctl.sandbox.packages.find_program", lambda name: f"/nowhere/{name}")
    monkeypatch.setenv("SRTCTL_STACK_DIR", str(tmp_path / "stack"))
    monkeypatch.setenv("SRTCTL_DATA_DIR", str(tmp_path / ("d" * 100)))
    monkeypatch.delenv("SRTCTL_SANDBOX", raising=False)
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == code, result.output
    assert words in result.stderr
    assert result.stdout == ""
    assert not (tmp_path / ("d" * 100)).exists()


def test_nothing_is_mounted_below_a_plain_folder(tmp_path: Path) -> None:
    assert "/" in mount_points()
    unmount_below(tmp_path)
