"""The stack environment: a venv with the real Dynamo and what the simulated engines import, shared by all sandboxes."""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from srtctl.cluster.paths import SYSTEM_DATA_DIR, data_dir
from srtctl.sandbox.errors import SandboxError, SandboxRefusedError

LOCK_FILE = Path(__file__).with_name("stack.lock")
OVERRIDE = "SRTCTL_STACK_DIR"
"""Environment variable that names a stack environment to use as it is, whatever it holds."""
COMPLETE = "complete"
"""Marker inside a whole environment. (A venv cannot be made elsewhere and renamed: its scripts hold its path.)"""
HARMFUL = frozenset({"PYTHONPATH", "PYTHONHOME", "PIP_USER", "PIP_TARGET", "PIP_PREFIX"})
"""Variables of the caller that would put packages elsewhere than into the venv, or find them elsewhere."""
PROBE = "import dynamo.llm, grpc, msgpack, tokenizers, zmq"


@dataclass(frozen=True, slots=True)
class Stack:
    """An installed stack environment."""

    root: Path

    @property
    def python(self) -> Path:
        return self.root / "bin" / "python3"

    def usable(self) -> bool:
        """True when its python can be run by this user (a venv of root's may point into root's home)."""
        return os.access(self.python, os.X_OK)


def stack_key(lock: bytes, python: str, machine: str) -> str:
    """Folder name of the environment: what is locked, for which Python (`3.11`) and machine (`x86_64`)."""
    return hashlib.sha256(b"\0".join((lock, python.encode(), machine.encode()))).hexdigest()[:12]


def _folder(data: Path) -> Path:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return data / "stack" / stack_key(LOCK_FILE.read_bytes(), version, platform.machine())


def find(env: Mapping[str, str] = os.environ) -> Stack | None:
    """The stack environment to use: `$SRTCTL_STACK_DIR`, else a complete one of root's or of this user's, else None.

    Raises SandboxRefusedError when `$SRTCTL_STACK_DIR` names a folder without a usable python.
    """
    if explicit := env.get(OVERRIDE):
        stack = Stack(Path(explicit).absolute())
        if not stack.usable():
            raise SandboxRefusedError(
                f"${OVERRIDE} is {explicit}, where there is no {stack.python} that this user can run",
                hint="point it at a venv, or unset it",
            )
        return stack
    candidates = (Stack(_folder(data)) for data in (SYSTEM_DATA_DIR, data_dir(env)))
    return next((s for s in candidates if os.access(s.root / COMPLETE, os.R_OK) and s.usable()), None)


def require(env: Mapping[str, str] = os.environ) -> Stack:
    """As `find`; raises SandboxRefusedError when there is none."""
    if stack := find(env):
        return stack
    raise SandboxRefusedError(
        f"the stack environment (Dynamo and what the simulators need) is not installed in {_folder(data_dir(env))}",
        hint="run `srtctl sandbox install`",
    )


def install(say: Callable[[str], None], env: Mapping[str, str] = os.environ) -> Stack:
    """The stack environment, made first if there is none. Takes about a minute and 350 MB; `say` gets progress lines.

    Raises SandboxError with the end of pip's output when it fails; nothing half made stays behind.
    """
    if stack := find(env):
        return stack
    target = Stack(_folder(data_dir(env)))
    target.root.parent.mkdir(parents=True, exist_ok=True)
    with _installing(target.root, say):
        if stack := find(env):
            return stack
        shutil.rmtree(target.root, ignore_errors=True)
        try:
            _build(target, say)
        except BaseException:
            shutil.rmtree(target.root, ignore_errors=True)
            raise
    return target


@contextmanager
def _installing(root: Path, say: Callable[[str], None]) -> Iterator[None]:
    with root.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another installation of {root}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(target: Stack, say: Callable[[str], None]) -> None:
    say(f"stack environment: {target.root} (once; about a minute, 350 MB)")
    _run([sys.executable, "-m", "venv", str(target.root)], say, "python could not make a virtual environment")
    python = str(target.python)
    pip = [python, "-m", "pip", "install", "--no-deps", "--require-hashes", "--only-binary", ":all:", "--no-input"]
    options = ["--disable-pip-version-check", "--progress-bar", "off", "-r", str(LOCK_FILE)]
    _run([*pip, *options], say, "pip could not install the stack environment")
    say("checking that it can be imported")
    _run([python, "-c", PROBE], say, "the stack environment was installed but cannot be imported")
    (target.root / COMPLETE).touch()


def _run(argv: list[str], say: Callable[[str], None], failure: str) -> None:
    tail: deque[str] = deque(maxlen=12)
    with subprocess.Popen(
        argv,
        env={name: value for name, value in os.environ.items() if name not in HARMFUL},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            tail.append(f"  {line.rstrip()}")
            if line.startswith(("Collecting ", "Installing ")):
                say(f"  {re.split(' [(]from |: ', line)[0].rstrip()}")
    if process.returncode:
        raise SandboxError(failure, hint="the lines above are its last words", detail="\n".join(tail))
