"""The real Dynamo with simulated engines, on one machine: etcd, frontend with the KV router, and native sidecars."""

from __future__ import annotations

import base64
import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from srtctl.sandbox import stack
from srtctl.sandbox.image import build_image

STACK = stack.find()
PYTHON = STACK.python if STACK else Path("/nowhere/python3")
BLOCK = 16
CLONE_NEWNET = 0x40000000
DROPPED = ("DYN_", "SRTCTL_SIM_", "SGLANG_", "PYTHON")


@contextlib.contextmanager
def private_network(*addresses: str) -> Iterator[None]:
    """Move this thread, and so the processes it starts, to a new network namespace with loopback; then back.

    `addresses` are further ones of its loopback. Needs root. Raises OSError where namespaces are not allowed.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        if libc.unshare(CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "no network namespace")
        try:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            for address in addresses:
                subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=True)
            yield
        finally:
            assert libc.setns(home, CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
    finally:
        os.close(home)


def make_image(folder: Path) -> None:
    """Fill the folder as a sandbox's image is, with a model folder in it."""
    build_image(folder)
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    subprocess.run([PYTHON, "-m", "srtctl.sim.model", folder / "model"], env=environment, check=True)


class Stack:
    """Processes with logs in one folder; `stop` ends what still runs."""

    def __init__(self, folder: Path, image: Path) -> None:
        self.folder = folder
        self.image = image
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.ports = iter(free_ports(40))
        self.etcd_port, self.http_port = next(self.ports), next(self.ports)
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(DROPPED)},
            **dict.fromkeys(("DYN_TCP_RPC_HOST", "DYN_TCP_RESPONSE_STREAM_HOST", "DYN_EVENT_PLANE_HOST"), "127.0.0.1"),
            "PYTHONPATH": str(image),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": str(folder),  # Dynamo leaves a file there a process
            "ETCD_ENDPOINTS": f"http://127.0.0.1:{self.etcd_port}",
            "DYN_DISCOVERY_BACKEND": "etcd",
            "DYN_SYSTEM_HOST": "127.0.0.1",
            "DYN_LOG": "info",
            "DYN_SDK_DISABLE_ANSI_LOGGING": "1",
            "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": "0",
            "DYN_PREFILL_DRAIN_TIMEOUT_S": "0",  # Dynamo cannot see whether SGLang is quiescent: it waits 25 s
            "HF_HUB_OFFLINE": "1",
            "NO_PROXY": "*",
            "no_proxy": "*",
        }

    def start(self, name: str, *argv: object, **environment: str) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [str(word) for word in argv],
                env={**self.environment, **environment},
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def last_line(self, name: str) -> str:
        return self.log(name).strip().splitlines()[-1]

    def until(self, what: str, condition: Callable[[], Any], seconds: float = 60) -> Any:
        """The first true value of `condition`; fails with every process's last line when there is none in time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, ValueError, KeyError, IndexError):
                if value := condition():
                    return value
            time.sleep(0.1)
        raise AssertionError(
            f"{what}: not within {seconds:g} s; " + str({n: self.last_line(n) for n in self.processes})
        )

    def infrastructure(self) -> None:
        peer = f"http://127.0.0.1:{next(self.ports)}"
        client = self.environment["ETCD_ENDPOINTS"]
        flags = {"listen-client-urls": client, "advertise-client-urls": client, "listen-peer-urls": peer}
        flags |= {"initial-advertise-peer-urls": peer, "initial-cluster": f"default={peer}"}
        flags |= {"data-dir": str(self.folder / "etcd-data")}
        self.start("etcd", "etcd", *(word for flag, value in flags.items() for word in (f"--{flag}", value)))
        self.until("etcd", lambda: get(f"{client}/health")[0] == 200)
        http = ("--http-host", "127.0.0.1", "--http-port", self.http_port, "--router-mode", "kv")
        self.start("frontend", PYTHON, "-m", "dynamo.frontend", *http)
        self.until("frontend", lambda: get(f"http://127.0.0.1:{self.http_port}/health")[0] == 200)

    def engine(self, name: str, *sizes: object, nodes: int = 1, role: str = "", fault: str = "") -> None:
        """An engine of `nodes` processes with KV events, DP size 2, and a sidecar beside each process."""
        kv_base, _, bootstrap = (next(self.ports) for _ in range(3))
        events = json.dumps({"publisher": "zmq", "topic": "kv-events", "endpoint": f"tcp://*:{kv_base}"})
        common: list[object] = ["--model-path", self.image / "model", "--served-model-name", "tiny"]
        common += ["--host", "0.0.0.0", "--page-size", BLOCK, "--incremental-streaming-output", *sizes]
        common += ["--kv-events-config", events] if role != "decode" else []
        common += ["--disaggregation-mode", role] if role else []
        common += ["--disaggregation-bootstrap-port", bootstrap] if role == "prefill" else []
        if nodes > 1:
            common += ["--nnodes", nodes, "--dist-init-addr", f"127.0.0.1:{next(self.ports)}"]
        for rank in range(nodes):
            grpc = next(self.ports)
            argv = ["--port", next(self.ports), "--grpc-port", grpc, "--node-rank", rank, *common]
            self.start(f"{name}-{rank}", PYTHON, "-m", "sglang.launch_server", *argv, SRTCTL_SIM_FAULT=fault)
            if rank and role == "decode":
                continue  # a follower without KV publisher has no sidecar
            sidecar: list[object] = [PYTHON, "-m", "dynamo.sglang.sidecar", "--grpc-endpoint", f"127.0.0.1:{grpc}"]
            sidecar += ["--bootstrap-host", "127.0.0.1"] if role == "prefill" and rank == 0 else []
            self.start(f"{name}-sidecar-{rank}", *sidecar, DYN_SYSTEM_PORT=str(next(self.ports)))

    def workers(self) -> dict[str, int]:
        """Id by type of every registered worker; empty while the frontend does not list their model."""
        models = json.loads(get(f"http://127.0.0.1:{self.http_port}/v1/models")[1])["data"]
        if not models:
            return {}
        assert [model["id"] for model in models] == ["tiny"]
        cards = self.discovery("v1/mdc/").values()
        return {card["card_json"]["worker_type"]: int(card["instance_id"]) for card in cards}

    def discovery(self, prefix: str) -> dict[str, Any]:
        key, end = (
            base64.b64encode(text.encode()).decode() for text in (prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1))
        )
        url = f"{self.environment['ETCD_ENDPOINTS']}/v3/kv/range"
        found = json.loads(get(url, {"key": key, "range_end": end})[1]).get("kvs", [])
        return {base64.b64decode(kv["key"]).decode(): json.loads(base64.b64decode(kv["value"])) for kv in found}

    def ask(self, text: str, **nvext: object) -> tuple[int, str]:
        """Send one chat request; returns status and body of the answer."""
        body = {"model": "tiny", "messages": [{"role": "user", "content": text}], "max_tokens": 8}
        body["nvext"] = {"extra_fields": ["worker_id", "timing"], **nvext}
        return get(f"http://127.0.0.1:{self.http_port}/v1/chat/completions", body)

    def chat(self, text: str, **nvext: object) -> dict[str, Any]:
        """The answer to one chat request, which must be 200."""
        status, answer = self.ask(text, **nvext)
        assert status == 200, answer
        return dict(json.loads(answer))

    def stop(self) -> dict[str, int]:
        """End all processes, sidecars before engines; returns their exit codes."""
        codes = {}
        for process in reversed(self.processes.values()):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for name, process in self.processes.items():
            try:
                codes[name] = process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                codes[name] = process.wait()
        return codes


def free_ports(count: int) -> list[int]:
    """Consecutive ports, free now and below 32768 (`DYN_SYSTEM_PORT` is a signed 16-bit number)."""
    for first in range(20000 + os.getpid() % 97 * 100, 32000, count):
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.create_server(("0.0.0.0", port)))
            return list(range(first, first + count))
    raise AssertionError("no free ports")


def get(url: str, body: object = None) -> tuple[int, str]:
    """Status and body of a GET, or of a POST of `body` as JSON."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
