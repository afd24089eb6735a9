"""Simulated engine processes for tests: started on free ports, always ended."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import msgpack
import pytest
import zmq

from srtctl.sim.model import write_model
from srtctl.sim.sglang.grpc_server import MESSAGES, SERVICE

SOURCE = Path(__file__).resolve().parents[3] / "src"
DEADLINE = 30.0
_next_port = itertools.count(20000 + os.getpid() % 600 * 20)


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


class Server:
    """One `python -m sglang.launch_server`: its ports, and what a client does with it."""

    def __init__(self, model: Path, log: Path, flags: list[object], environment: dict[str, str]) -> None:
        self.port, self.grpc_port = free_ports(), free_ports()
        self.log_path = log
        ports = ["--port", self.port, "--grpc-port", self.grpc_port]
        argv = ["--model-path", model, "--served-model-name", "tiny", *ports, "--page-size", 4, *flags]
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("SRTCTL_", "SGLANG_"))}
        path = f"{SOURCE}{os.pathsep}{SOURCE / 'srtctl/sim/modules'}"
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "sglang.launch_server", *map(str, argv)],
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

    def ready(self) -> Server:
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

    def call(self, rpc: str, **fields: object) -> Any:
        """One unary RPC."""
        with self.channel() as channel:
            method = channel.unary_unary(
                f"/{SERVICE}/{rpc}",
                request_serializer=MESSAGES[f"{rpc}Request"].SerializeToString,
                response_deserializer=MESSAGES[f"{rpc}Response"].FromString,
            )
            return method(MESSAGES[f"{rpc}Request"](**fields), timeout=DEADLINE, wait_for_ready=True)

    def info(self) -> dict[str, Any]:
        """What GetServerInfo tells."""
        return dict(json.loads(self.call("GetServerInfo").json_info))

    @contextlib.contextmanager
    def stream(
        self,
        rank: int | None,
        tokens: list[int],
        rid: str = "",
        max_new_tokens: int | None = 4,
        bootstrap: tuple[str, int, int] | None = None,
    ) -> Iterator[Any]:
        """The responses of Generate; `bootstrap` is host, port and room of a disaggregated request."""
        request = MESSAGES["GenerateRequest"](input_ids=tokens, rid=rid)
        if rank is not None:
            request.routed_dp_rank = rank
        if max_new_tokens is not None:
            request.sampling_params.max_new_tokens = max_new_tokens
        if bootstrap is not None:
            params = request.disaggregated_params
            params.bootstrap_host, params.bootstrap_port, params.bootstrap_room = bootstrap
        with self.channel() as channel:
            method = channel.unary_stream(
                f"/{SERVICE}/Generate",
                request_serializer=MESSAGES["GenerateRequest"].SerializeToString,
                response_deserializer=MESSAGES["GenerateResponse"].FromString,
            )
            yield method(request, timeout=DEADLINE, wait_for_ready=True)

    def generate(self, rank: int | None, tokens: list[int], **options: Any) -> tuple[list[int], dict[str, Any]]:
        """All generated tokens, and the meta_info of the last response, decoded."""
        with self.stream(rank, tokens, **options) as responses:
            received = list(responses)
        assert [response.finished for response in received] == [False] * (len(received) - 1) + [True]
        meta = {key: json.loads(value) for key, value in received[-1].meta_info.items()}
        return [token for response in received for token in response.output_ids], meta


class Subscriber:
    """Receives the KV events of one publisher."""

    def __init__(self, port: int, topic: str = "") -> None:
        self.socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.SUB)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.subscribe(topic.encode())
        self.socket.connect(f"tcp://127.0.0.1:{port}")

    def batch(self, seconds: float) -> tuple[str, int, list[Any], int] | None:
        """Topic, sequence number, events and DP rank of the next batch; None when there is none in time."""
        if not self.socket.poll(int(seconds * 1000)):
            return None
        topic, sequence, payload = self.socket.recv_multipart()
        _, events, dp_rank = msgpack.unpackb(payload)
        return topic.decode(), int.from_bytes(sequence, "big"), events, dp_rank


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that start a simulated engine are `process` tests."""
    for item in items:
        if "launch" in getattr(item, "fixturenames", ()) and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.process)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder."""
    folder = tmp_path_factory.mktemp("model")
    write_model(folder)
    return folder


@pytest.fixture
def launch(model: Path, tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Start servers: `launch("--flag", value, ..., fault="...", group_timeout=seconds, transfer_timeout=seconds)`."""
    servers: list[Server] = []

    def start(
        *flags: object, fault: str = "", group_timeout: float = DEADLINE, transfer_timeout: object = DEADLINE
    ) -> Server:
        timeouts = ("SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT", "SGLANG_DISAGGREGATION_WAITING_TIMEOUT")
        environment = dict.fromkeys(timeouts, str(transfer_timeout))
        environment |= {"SRTCTL_SIM_FAULT": fault, "SRTCTL_SIM_GROUP_TIMEOUT": str(group_timeout)}
        server = Server(model, tmp_path / f"server-{len(servers)}.log", list(flags), environment)
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.process.kill()
        server.process.wait()


@pytest.fixture
def subscribe() -> Iterator[Callable[..., Subscriber]]:
    """Subscribe to publishers: `subscribe(port, topic)`."""
    subscribers: list[Subscriber] = []

    def start(port: int, topic: str = "") -> Subscriber:
        subscribers.append(Subscriber(port, topic))
        return subscribers[-1]

    yield start
    for subscriber in subscribers:
        subscriber.socket.close()


@pytest.fixture
def ports() -> Callable[[int], int]:
    """`ports(n)`: the first of n consecutive free ports."""
    return free_ports
