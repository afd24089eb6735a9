"""One process of a simulated engine: its ports, its log, and what every client does with it."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import grpc

SOURCE = Path(__file__).resolve().parents[3] / "src"
DEADLINE = 30.0
_next_port = itertools.count(20000 + os.getpid() % 600 * 20)
_DROPPED = ("SRTCTL_", "SGLANG_", "VLLM_")


def free_ports(count: int = 1) -> int:
    """The first of `count` consecutive ports that nothing listens on, below the ephemeral range."""
    while True:
        first = 20000 + (next(_next_port) - 20000) % 12000
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.create_server(("0.0.0.0", port)))
            for _ in range(count - 1):
                next(_next_port)
            return first


class EngineProcess:
    """A process with two ports of its own; who starts it ends it."""

    process: subprocess.Popen[bytes]

    def __init__(self, log: Path) -> None:
        self.log_path = log
        self.port, self.grpc_port = free_ports(), free_ports()
        self.ports: list[object] = ["--port", self.port, "--grpc-port", self.grpc_port]

    def start(self, module: str, argv: Sequence[object], environment: Mapping[str, str]) -> None:
        """Start `python -m MODULE ARGV`, which has the simulators on its path."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(_DROPPED)}
        path = f"{SOURCE}{os.pathsep}{SOURCE / 'srtctl/sim/modules'}"
        with self.log_path.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *map(str, argv)],
                env={**inherited, "PYTHONPATH": path, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    @property
    def last_line(self) -> str:
        return (self.log.strip().splitlines() or [""])[-1]

    def until(self, what: str, condition: Callable[[], Any]) -> Any:
        """The first true value of `condition`; fails when there is none in time or the process ends."""
        deadline = time.monotonic() + DEADLINE
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                if value := condition():
                    return value
            assert self.process.poll() is None, self.log
            time.sleep(0.02)
        raise AssertionError(f"{what} did not happen: {self.log}")

    def ready(self) -> Self:
        """Wait until health is positive."""
        self.until("/health 200", lambda: self.get("/health")[0] == 200)
        return self

    def ended(self) -> int:
        """Wait for the end; returns the exit code."""
        return self.process.wait(DEADLINE)

    def get(self, path: str) -> tuple[int, str]:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"http://127.0.0.1:{self.port}{path}", timeout=DEADLINE) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    @contextlib.contextmanager
    def channel(self) -> Iterator[grpc.Channel]:
        with grpc.insecure_channel(f"127.0.0.1:{self.grpc_port}", [("grpc.enable_http_proxy", 0)]) as channel:
            yield channel
