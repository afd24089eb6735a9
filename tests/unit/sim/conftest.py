"""Simulated engine processes for tests: started on free ports, always ended."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest
import zmq
from engine_process import DEADLINE, EngineProcess, free_ports
from vllm_server import VllmServer

from srtctl.sim.model import write_model
from srtctl.sim.sglang.grpc_server import MESSAGES, SERVICE


class Server(EngineProcess):
    """One `python -m sglang.launch_server`: its ports, and what a client does with it."""

    def __init__(self, model: Path, log: Path, flags: list[object], environment: dict[str, str]) -> None:
        super().__init__(log)
        argv = ["--model-path", model, "--served-model-name", "tiny", *self.ports, "--page-size", 4, *flags]
        self.start("sglang.launch_server", argv, environment)

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
        if {"launch", "launch_vllm"} & set(getattr(item, "fixturenames", ())) and Path(
            __file__
        ).parent in item.path.parents:
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
def launch_vllm(model: Path, tmp_path: Path) -> Iterator[Callable[..., VllmServer]]:
    """Start vLLM processes: `launch_vllm("--flag", value, ..., fault="...", group_timeout=seconds, NAME="value")`."""
    servers: list[VllmServer] = []

    def start(*flags: object, fault: str = "", group_timeout: float = DEADLINE, **environment: str) -> VllmServer:
        settings = {"SRTCTL_SIM_FAULT": fault, "SRTCTL_SIM_GROUP_TIMEOUT": str(group_timeout), **environment}
        servers.append(VllmServer(model, tmp_path / f"vllm-{len(servers)}.log", list(flags), settings))
        return servers[-1]

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
