"""A real Slurm sandbox for the end-to-end tests, with its own name, data folder and address range."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import sim_stack
from tests.support import REPOSITORY

DEADLINE = 180.0


@dataclass(frozen=True)
class Cli:
    """The `srtctl` command with an environment of its own."""

    env: dict[str, str]

    def __call__(self, *argv: str, code: int | None = 0, **env: str) -> subprocess.CompletedProcess[str]:
        """Run it; fail the test unless it exits with `code` (None: any)."""
        done = subprocess.run(
            [sys.executable, "-m", "srtctl", *argv],
            cwd=REPOSITORY,
            env=self.env | env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
        if code is not None and done.returncode != code:
            raise AssertionError(
                f"srtctl {' '.join(argv)}: exit {done.returncode}, not {code}\n{done.stdout}\n{done.stderr}"
            )
        return done

    def json(self, *argv: str, **options: Any) -> Any:
        return json.loads(self(*argv, "-o", "json", **options).stdout)


@dataclass(frozen=True)
class Sandbox:
    """A booted sandbox."""

    cli: Cli
    directory: Path

    def slurm(self, *argv: str) -> str:
        env = self.cli.env | {"SLURM_CONF": str(self.directory / "slurm.conf")}
        return subprocess.run(argv, env=env, capture_output=True, text=True, check=True, timeout=60).stdout

    def run_dir(self, run: str) -> Path:
        return self.directory / "runs" / run

    def apply(self, recipe: Path | str, *options: str, code: int = 0, **env: str) -> dict[str, Any]:
        """`srtctl apply --wait`; the status of the run that it printed."""
        result = self.cli("apply", str(recipe), "--wait", "-o", "json", *options, code=code, **env)
        status: dict[str, Any] = json.loads(result.stdout)
        return status

    def left_over(self, job_id: str) -> list[str]:
        """Command lines of processes that still carry the job's environment."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                environ = (folder / "environ").read_bytes().split(b"\0")
                if f"SLURM_JOB_ID={job_id}".encode() in environ and str(self.directory).encode() in b"".join(environ):
                    found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
        return [line for line in found if line]


def wait_until(what: str, condition: Callable[[], Any], deadline: float = DEADLINE) -> Any:
    """The first true value of `condition`; fails naming `what` when there is none in time."""
    end = time.monotonic() + deadline
    while True:
        if value := condition():
            return value
        assert time.monotonic() < end, f"{what}: not within {deadline} s"
        time.sleep(0.1)


@pytest.fixture(scope="session")
def stack_dir() -> Path:
    from srtctl.sandbox.stack import find

    found = find()
    if found is None:
        pytest.skip("the sandbox's stack environment is not installed: srtctl sandbox install")
    return found.root


@pytest.fixture(scope="session")
def sandbox(stack_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """Four nodes of two GPUs, in network namespaces; one sandbox for all tests of a session."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    data = Path(tempfile.mkdtemp(prefix="srtctl-e2e-", dir="/tmp"))  # short: Slurm keeps unix sockets below it
    name = f"e2e{os.getpid()}"
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path_factory.mktemp("home")),
        "SRTCTL_DATA_DIR": str(data),
        "SRTCTL_STACK_DIR": str(stack_dir),
        "SRTCTL_SANDBOX": name,
        "NO_COLOR": "1",
    }
    cli = Cli(env)
    try:
        cli("sandbox", "up", "--nodes", "4", "--gpus-per-node", "2", "--network", "netns")
        yield Sandbox(cli, data / "sandbox" / name)
    finally:
        cli("sandbox", "down", code=None)
        shutil.rmtree(data, ignore_errors=True)


@pytest.fixture(scope="module")
def private_network() -> Iterator[None]:
    """A network namespace for everything that the module's tests start, where this user may have one."""
    if os.geteuid() != 0:
        yield
        return
    with sim_stack.private_network():
        yield


@pytest.fixture(scope="session")
def image(stack_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that a sandbox's image has on PYTHONPATH, with a model folder in it."""
    folder = tmp_path_factory.mktemp("image")
    sim_stack.make_image(folder)
    return folder


@pytest.fixture
def bare_stack(tmp_path: Path, image: Path) -> Iterator[sim_stack.Stack]:
    """A place for Dynamo and engines on this machine, nothing running yet; what is started ends with the test."""
    if not shutil.which("etcd"):
        pytest.skip("etcd is not installed: srtctl sandbox install")
    result = sim_stack.Stack(tmp_path, image)
    try:
        yield result
    finally:
        result.stop()


@pytest.fixture
def stack(bare_stack: sim_stack.Stack) -> sim_stack.Stack:
    """The same with etcd and the frontend running."""
    bare_stack.infrastructure()
    return bare_stack
