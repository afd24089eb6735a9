"""The stack environment: what its lock holds, where it is looked for, what a failed installation leaves."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from srtctl.sandbox import packages, stack
from srtctl.sandbox.errors import SandboxError, SandboxRefusedError

REQUIREMENTS = Path(__file__).parents[3] / "requirements"


def pinned() -> set[str]:
    return set(re.findall(r"^([a-z0-9-]+)==", stack.LOCK_FILE.read_text(), re.MULTILINE))


def fake_stack(root: Path) -> None:
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "python3").symlink_to(sys.executable)


def test_everything_that_is_wanted_is_locked() -> None:
    wanted = {
        re.split(r"[=<>]", line)[0]
        for name in ("stack.in", "dynamo.in")
        for line in (REQUIREMENTS / name).read_text().splitlines()
        if not line.startswith("#")
    }
    assert wanted
    assert wanted <= pinned()


def test_every_pin_has_a_hash_and_no_registry_is_named() -> None:
    text = "".join(line for line in stack.LOCK_FILE.read_text().splitlines(True) if not line.startswith("#"))
    for requirement in re.split(r"\n(?=\S)", text.strip()):
        assert "--hash=sha256:" in requirement, requirement.splitlines()[0]
    assert "://" not in text


def test_the_key_depends_on_lock_python_and_machine() -> None:
    keys = {
        stack.stack_key(*arguments)
        for arguments in (
            (b"a", "3.11", "x86_64"),
            (b"b", "3.11", "x86_64"),
            (b"a", "3.12", "x86_64"),
            (b"a", "3.11", "arm"),
        )
    }
    assert len(keys) == 4


def test_an_explicit_folder_is_used_as_it_is(tmp_path: Path) -> None:
    fake_stack(tmp_path)
    assert stack.find({"SRTCTL_STACK_DIR": str(tmp_path)}) == stack.Stack(tmp_path)


def test_an_explicit_folder_without_python_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SandboxRefusedError, match="SRTCTL_STACK_DIR"):
        stack.find({"SRTCTL_STACK_DIR": str(tmp_path)})


def test_only_a_complete_environment_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack, "SYSTEM_DATA_DIR", tmp_path / "system")
    env = {"SRTCTL_DATA_DIR": str(tmp_path / "own")}
    with pytest.raises(SandboxRefusedError, match="not installed") as caught:
        stack.require(env)
    assert "srtctl sandbox install" in caught.value.hint
    for data in ("own", "system"):  # root's wins when there are both
        root = stack._folder(tmp_path / data)
        fake_stack(root)
        before = stack.find(env)
        assert before is None or before.root != root
        (root / stack.COMPLETE).touch()
        assert stack.require(env).root == root


def test_a_failed_installation_leaves_nothing_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nmkdir -p "$3/bin"; echo "ensurepip is not available"; exit 1\n')
    python.chmod(0o755)
    monkeypatch.setattr(stack.sys, "executable", str(python))
    monkeypatch.setattr(stack, "SYSTEM_DATA_DIR", tmp_path / "system")
    said: list[str] = []
    with pytest.raises(SandboxError, match="virtual environment") as caught:
        stack.install(said.append, {"SRTCTL_DATA_DIR": str(tmp_path / "own")})
    assert "ensurepip is not available" in caught.value.detail
    assert [path.suffix for path in (tmp_path / "own" / "stack").iterdir()] == [".lock"]
    assert said[0].startswith("stack environment:")


def test_missing_packages_are_named_with_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for program in ("ip", "munged", "nsenter", "unshare", "mount", "umount", "sinfo"):
        (tmp_path / program).touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(packages, "SYSTEM_PATH", str(tmp_path))
    assert packages.missing() == ["etcd-server", "nats-server", "nginx", "slurm-client", "slurm-wlm"]
    with pytest.raises(SandboxRefusedError, match="etcd-server, nats-server, nginx, slurm-client, slurm-wlm") as caught:
        packages.require()
    assert "srtctl sandbox install" in caught.value.hint
    assert "apt-get install" in caught.value.hint


def test_without_root_the_command_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "apt-get").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(packages, "SYSTEM_PATH", str(tmp_path))
    monkeypatch.setattr(packages.os, "geteuid", lambda: 1000)
    with pytest.raises(SandboxError, match="needs root") as caught:
        packages.install(lambda _: None)
    assert caught.value.exit_code == 1
    assert "apt-get install" in caught.value.hint


def test_the_install_script_is_valid_shell() -> None:
    done = subprocess.run(["/bin/sh", "-n"], input=packages.INSTALL_SCRIPT, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
