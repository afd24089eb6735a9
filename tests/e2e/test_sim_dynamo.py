"""The simulated SGLang against the real Dynamo: etcd, frontend with the KV router, and native sidecars, on one machine.

Dynamo is the independent witness that the simulator speaks the protocol. Needs `SRTCTL_STACK_DIR`, a stack environment
(see docs/), and etcd. As root everything runs in a network namespace of its own, because Dynamo's event sockets listen
on all addresses.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.e2e

SOURCE = Path(__file__).resolve().parents[2] / "src" / "srtctl"
STACK = os.environ.get("SRTCTL_STACK_DIR", "")
PYTHON = Path(STACK) / "bin" / "python3"
CLONE_NEWNET = 0x40000000
BLOCK = 16

if not STACK or not PYTHON.exists():
    pytest.skip("SRTCTL_STACK_DIR names no stack environment with Dynamo in it", allow_module_level=True)
if not shutil.which("etcd"):
    pytest.skip("etcd is not installed", allow_module_level=True)


@pytest.fixture(scope="module", autouse=True)
def private_network() -> Iterator[None]:
    """Move this thread, and so the processes it starts, to a new network namespace with loopback; then back."""
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        if libc.unshare(CLONE_NEWNET) != 0:
            pytest.skip(f"no network namespace: {os.strerror(ctypes.get_errno())}")
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        yield
        assert libc.setns(home, CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
    finally:
        os.close(home)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that a sandbox's image has on PYTHONPATH, with a model folder in it."""
    folder = tmp_path_factory.mktemp("image")
    shutil.copytree(SOURCE / "sim", folder / "srtctl" / "sim")
    shutil.copy(SOURCE / "__init__.py", folder / "srtctl")
    shutil.copytree(SOURCE / "sim" / "modules", folder, dirs_exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    subprocess.run([PYTHON, "-m", "srtctl.sim.model", folder / "model"], env=environment, check=True)
    return folder


class Stack:
    """Processes with logs in one folder; `stop` ends what still runs."""

    def __init__(self, folder: Path, image: Path) -> None:
        self.folder = folder
        self.image = image
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.ports = iter(free_ports(30))
        self.etcd_port, self.http_port = next(self.ports), next(self.ports)
        self.environment = {
            **{
                key: value for key, value in os.environ.items() if not key.startswith(("DYN_", "SRTCTL_SIM_", "PYTHON"))
            },
            **dict.fromkeys(("DYN_TCP_RPC_HOST", "DYN_TCP_RESPONSE_STREAM_HOST", "DYN_EVENT_PLANE_HOST"), "127.0.0.1"),
            "PYTHONPATH": str(image),
            "PYTHONDONTWRITEBYTECODE": "1",
            "ETCD_ENDPOINTS": f"http://127.0.0.1:{self.etcd_port}",
            "DYN_DISCOVERY_BACKEND": "etcd",
            "DYN_SYSTEM_HOST": "127.0.0.1",
            "DYN_LOG": "info",
            "DYN_SDK_DISABLE_ANSI_LOGGING": "1",
            "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": "0",
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

    def engine(self, fault: str = "") -> None:
        """A TP2/DP2 attention engine over two processes, with a sidecar beside each."""
        dist_init, kv_base = f"127.0.0.1:{next(self.ports)}", next(self.ports)
        next(self.ports)
        events = json.dumps({"publisher": "zmq", "topic": "kv-events", "endpoint": f"tcp://*:{kv_base}"})
        for rank in (0, 1):
            grpc = next(self.ports)
            argv: list[object] = ["--model-path", self.image / "model", "--served-model-name", "tiny"]
            argv += ["--host", "0.0.0.0", "--port", next(self.ports), "--grpc-port", grpc, "--page-size", BLOCK]
            argv += ["--nccl-port", next(self.ports), "--incremental-streaming-output", "--kv-events-config", events]
            argv += ["--tp-size", 2, "--dp-size", 2, "--enable-dp-attention", "--nnodes", 2, "--node-rank", rank]
            argv += ["--dist-init-addr", dist_init]
            self.start(f"engine-{rank}", PYTHON, "-m", "sglang.launch_server", *argv, SRTCTL_SIM_FAULT=fault)
            sidecar = (PYTHON, "-m", "dynamo.sglang.sidecar", "--grpc-endpoint", f"127.0.0.1:{grpc}")
            self.start(f"sidecar-{rank}", *sidecar, DYN_SYSTEM_PORT=str(next(self.ports)))

    def worker_id(self) -> int:
        """The id under which the one engine is registered; 0 while the frontend does not list its model."""
        models = json.loads(get(f"http://127.0.0.1:{self.http_port}/v1/models")[1])["data"]
        if not models:
            return 0
        assert [model["id"] for model in models] == ["tiny"]
        (card,) = self.discovery("v1/mdc/").values()
        return int(card["instance_id"])

    def discovery(self, prefix: str) -> dict[str, Any]:
        key, end = (
            base64.b64encode(text.encode()).decode() for text in (prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1))
        )
        url = f"{self.environment['ETCD_ENDPOINTS']}/v3/kv/range"
        found = json.loads(get(url, {"key": key, "range_end": end})[1]).get("kvs", [])
        return {base64.b64decode(kv["key"]).decode(): json.loads(base64.b64decode(kv["value"])) for kv in found}

    def chat(self, text: str, **nvext: object) -> dict[str, Any]:
        """Send one chat request; returns the answer, which must be 200."""
        body = {"model": "tiny", "messages": [{"role": "user", "content": text}], "max_tokens": 8}
        body["nvext"] = {"extra_fields": ["worker_id", "timing"], **nvext}
        status, answer = get(f"http://127.0.0.1:{self.http_port}/v1/chat/completions", body)
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


@pytest.fixture
def stack(tmp_path: Path, image: Path) -> Iterator[Stack]:
    """etcd and the frontend, running."""
    result = Stack(tmp_path, image)
    try:
        result.infrastructure()
        yield result
    finally:
        result.stop()


def test_requests_reach_every_rank_and_the_router_learns_from_both_nodes(stack: Stack) -> None:
    stack.engine()
    worker = stack.until("the model is listed", stack.worker_id)
    stack.until("the follower relays", lambda: "publishing local KV events" in stack.log("sidecar-1"))
    sources = stack.discovery("v1/event_sources/").values()
    assert sorted(source["metadata"]["worker"]["dp_rank"] for source in sources) == [0, 1]

    for rank in (0, 1):

        def hit(rank: int = rank) -> bool:
            # A new prefix a try: what is published before the relay has subscribed is lost, and nothing tells when.
            prompt = f"{uuid.uuid4().hex} for rank {rank}. " * 4
            pin = {"backend_instance_id": worker, "dp_rank": rank}
            cold = stack.chat(prompt, **pin)
            assert cold["nvext"]["worker_id"]["decode_dp_rank"] == rank
            assert cold["choices"][0]["message"]["content"].startswith(f"r{rank}a")
            assert cold["nvext"]["timing"]["kv_hit_rate"] == 0
            deadline = time.monotonic() + 3
            while time.monotonic() < deadline:
                warm = stack.chat(prompt, **pin)
                assert warm["usage"]["prompt_tokens_details"]["cached_tokens"] >= len(prompt) - BLOCK
                if warm["nvext"]["timing"]["kv_hit_rate"] > 0:
                    return stack.chat(prompt)["nvext"]["worker_id"]["decode_dp_rank"] == rank
                time.sleep(0.1)
            return False

        stack.until(f"the router knows what rank {rank} has cached", hit)

    access = [line for line in stack.log("engine-0").splitlines() if "Prefill: rid=" in line]
    assert {"dp_rank=0", "dp_rank=1"} <= {word for line in access for word in line.split()}
    assert "Prefill" not in stack.log("engine-1")
    codes = stack.stop()
    assert codes["engine-0"] == codes["engine-1"] == 0, codes


def test_an_engine_that_reports_dp_size_1_makes_the_follower_sidecar_exit(stack: Stack) -> None:
    stack.engine(fault="report_dp_size=1")
    follower = stack.processes["sidecar-1"]
    stack.until("the follower's sidecar ends", lambda: follower.poll() is not None)
    assert follower.returncode == 1
    assert "KV source rank 1 is outside dp_size 1" in stack.last_line("sidecar-1")
    assert stack.processes["engine-1"].poll() is None


def test_an_engine_without_kv_event_sources_is_too_old_for_a_follower_sidecar(stack: Stack) -> None:
    stack.engine(fault="no_sources@1")
    follower = stack.processes["sidecar-1"]
    stack.until("the follower's sidecar ends", lambda: follower.poll() is not None)
    assert "telemetry-only mode requires GetServerInfo.kv_event_sources; upgrade SGLang" in stack.log("sidecar-1")
