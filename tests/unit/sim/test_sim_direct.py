"""The reference sidecar and frontend for direct dispatch keep the public contract, over real gRPC and HTTP."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from srtctl.sim.direct import registry as registry_module
from srtctl.sim.direct.card import CARDS, INSTANCES, Member, Place, members, registrations
from srtctl.sim.direct.chat import tokenize
from srtctl.sim.direct.engine import ConnectError, EngineClient, EngineInfo
from srtctl.sim.direct.plane import RequestPlane, status_routes
from srtctl.sim.direct.registry import DirectRegistry
from srtctl.sim.direct.router import DIRECT, REQUEST_PLANE, Router
from srtctl.sim.direct.sidecar import _parser
from srtctl.sim.direct.web import Web
from srtctl.sim.grpc_listener import GrpcListener
from srtctl.sim.http_server import HttpServer
from srtctl.sim.model import read_model, write_model
from srtctl.sim.protobuf import service
from srtctl.sim.vllm.messages import CONTROL, HEALTH, HEALTH_MESSAGES, INFERENCE, MESSAGES, NAMES, SERVING

Generate = Callable[[Any, grpc.ServicerContext], Iterator[Any]]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def answer(text: str, finish: int = 0) -> Any:
    output = MESSAGES["SequenceOutput"](text=text, num_tokens=len(text))
    if finish:
        output.finish_info.finish_reason = finish
    return MESSAGES["GenerateResponse"](outputs=output, prompt_info=MESSAGES["PromptInfo"](num_prompt_tokens=7))


class Engine:
    """A vLLM gRPC server whose `generate` a test decides; `peers` are who called it, `ranks` for which DP rank."""

    def __init__(self, generate: Generate | None = None) -> None:
        self.peers: list[str] = []
        self.ranks: list[str] = []
        self._generate = generate or (lambda *_: iter([answer("a"), answer("b", 1)]))
        self.port = free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        info = MESSAGES["ServerInfo"](api_version="vllm", max_model_len=4096, kv_block_size=16, total_kv_blocks=64)
        info.parallelism.data_parallel_size = info.parallelism.data_parallel_size_local = 2
        model = MESSAGES["ModelInfo"](model_id="/models/tiny", served_model_name="tiny")
        control = {"GetServerInfo": lambda *_: info, "GetModelInfo": lambda *_: model}
        healthy = HEALTH_MESSAGES["HealthCheckResponse"](status=SERVING)
        self._listener = GrpcListener(
            "127.0.0.1",
            self.port,
            (
                service(CONTROL, MESSAGES, control, names=NAMES),
                service(
                    INFERENCE, MESSAGES, {"GenerateStream": self._called}, frozenset({"GenerateStream"}), names=NAMES
                ),
                service(HEALTH, HEALTH_MESSAGES, {"Check": lambda *_: healthy}, names=NAMES),
            ),
        )

    def _called(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        self.peers.append(context.peer())
        self.ranks += [str(value) for key, value in context.invocation_metadata() if key == "x-data-parallel-rank"]
        yield from self._generate(request, context)

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def engine() -> Iterator[Callable[..., Engine]]:
    with contextlib.ExitStack() as stack:

        def start(generate: Generate | None = None) -> Engine:
            made = Engine(generate)
            stack.callback(made.close)
            return made

        yield start


def member(worker_id: int, direct: str = "", plane: str = "127.0.0.1:1", **more: Any) -> Member:
    return replace(Member(worker_id, "tiny", range(2), plane, direct, "agg", "http://127.0.0.1:1/"), **more)


class Dialled:
    """Stands for the connections of a registry: who was dialled, and who was dropped."""

    def __init__(self) -> None:
        self.dialled: list[str] = []
        self.dropped: list[str] = []
        self.unreachable: set[str] = set()

    def __call__(self, address: str) -> Any:
        self.dialled.append(address)
        if address in self.unreachable:
            raise ConnectError("refused")
        return FakeEngine(address, self.dropped)


class FakeEngine:
    def __init__(self, address: str, dropped: list[str]) -> None:
        self.address, self._dropped = address, dropped

    def drop(self) -> None:
        self._dropped.append(self.address)


def test_the_registry_follows_the_membership(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    wire, steps = Dialled(), []
    registry = DirectRegistry(wire)

    def change(*found: Member) -> None:
        wire.dialled, wire.dropped[:] = [], []
        registry.reconcile({each.worker_id: each for each in found})
        steps.append((wire.dialled, list(wire.dropped)))

    wire.unreachable = {"b"}
    change(member(1, "a"), member(2, "b"), member(3))
    assert (registry.get(1) is not None, registry.get(2), registry.get(3)) == (True, None, None)
    wire.unreachable = set()
    change(member(1, "a"), member(2, "b"), member(3), member(4))  # the failed one is tried again, on the next change
    change(member(1, "a2"), member(2, "b"))  # moved
    change(member(1), member(2, "b"))  # no longer advertises
    change(member(1))  # departed
    assert steps == [(["a", "b"], []), (["b"], []), (["a2"], ["a"]), ([], ["a2"]), ([], ["b"])]
    said = [record.message for record in caplog.records]
    assert said[0].startswith("direct dispatch: connected engine worker_id=1")
    assert said[1].startswith(
        "direct dispatch: connect failed; requests use the request plane until the next membership change worker_id=2"
    )
    assert "direct dispatch: dropped engine worker_id=1" in said


def test_a_real_connection_that_fails_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "CONNECT_SECONDS", 0.2)
    with pytest.raises(ConnectError, match="UNAVAILABLE"):
        registry_module.connect(f"http://127.0.0.1:{free_port()}")


def test_registrations_are_read_back() -> None:
    info = EngineInfo("/models/tiny", "org/tiny", 4096, 16, 32, range(2, 4))
    place = Place("dynamo", "backend", "generate", 0xAB)
    entries = dict(
        registrations(place, info, status="10.0.0.1:7500", plane="10.0.0.1:4", mode="agg", advertised="http://h:1")
    )
    assert list(entries) == [INSTANCES + "dynamo/backend/generate/ab", CARDS + "dynamo/backend/generate/ab"]
    cards = {key: value for key, value in entries.items() if key.startswith(CARDS)}
    assert members(cards, {}) == {}, "a card without its instance is not complete"
    tokenizer = "http://10.0.0.1:7500/v1/metadata/dynamo/backend/generate/org_tiny/_base/tokenizer.json"
    expected = Member(0xAB, "org/tiny", range(2, 4), "10.0.0.1:4", "http://h:1", "agg", tokenizer)
    assert members(cards, {key: value for key, value in entries.items() if key.startswith(INSTANCES)}) == {
        0xAB: expected
    }


@pytest.mark.parametrize(
    ("argv", "env", "advertised"),
    [
        ((), {}, None),
        ((), {"DYN_ADVERTISE_GRPC_ENDPOINT": "h:1"}, "http://h:1"),
        (("--advertise-grpc-endpoint", "10.0.0.1:9100"), {}, "http://10.0.0.1:9100"),
    ],
)
def test_the_sidecar_advertises_when_it_is_told_to(
    argv: tuple[str, ...], env: dict[str, str], advertised: str | None
) -> None:
    args = _parser(env).parse_args(["--grpc-endpoint", "127.0.0.1:9100", *argv])
    assert (args.grpc_endpoint, args.advertise_grpc_endpoint) == ("http://127.0.0.1:9100", advertised)


def test_prompts_are_one_token_a_byte(tmp_path: Path) -> None:
    write_model(tmp_path)
    vocab = read_model(str(tmp_path)).vocab
    tokens = tokenize("<|user|>a é<|end|>", vocab)
    assert [tokens[0], tokens[-1]] == [vocab["<|user|>"], vocab["<|end|>"]]
    assert len(tokens) == 2 + len("a é".encode())
    assert tokens[1] == vocab["a"]


class Deployment:
    """A frontend over HTTP, its router, and workers with sidecars of their own."""

    def __init__(self, stack: contextlib.ExitStack, folder: Path, direct: bool = True) -> None:
        write_model(folder)
        self._stack, self._folder = stack, folder
        self.registry = DirectRegistry()
        self.router = Router(self.registry if direct else None)
        self.port = free_port()
        self.workers: dict[int, Member] = {}
        self.planes: dict[int, RequestPlane] = {}
        stack.callback(self.registry.close)
        stack.callback(self.router.update, {})
        stack.callback(Web("127.0.0.1", self.port, self.router).close)

    def join(self, worker_id: int, engine: Engine, advertised: bool) -> None:
        client = EngineClient(engine.address)
        self._stack.callback(client.drop)
        plane = RequestPlane(client, "127.0.0.1")
        self._stack.callback(plane.close)
        port, self.planes[worker_id] = free_port(), plane
        routes = status_routes(self._folder, "/base", plane, {"dynamo_endpoint": "generate"})
        self._stack.callback(HttpServer("127.0.0.1", port, routes, lambda: True).close)
        url = f"http://127.0.0.1:{port}/base/tokenizer.json"
        self.workers[worker_id] = member(worker_id, engine.address if advertised else "", plane.address, tokenizer=url)
        self.changed()

    def changed(self) -> None:
        self.router.update(self.workers)
        self.registry.reconcile(self.workers)

    def ask(self, worker_id: int, dp_rank: int = 1, **more: object) -> tuple[int, str]:
        body = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2, **more}
        body["nvext"] = {"backend_instance_id": worker_id, "dp_rank": dp_rank, "extra_fields": ["worker_id"]}
        url = f"http://127.0.0.1:{self.port}/v1/chat/completions"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode()), timeout=20) as found:
                return found.status, found.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with contextlib.ExitStack() as stack:
        yield Deployment(stack, tmp_path)


def test_a_mixed_fleet(deployment: Deployment, engine: Callable[..., Engine]) -> None:
    one, two = engine(), engine()
    deployment.join(1, one, advertised=True)
    deployment.join(2, two, advertised=False)
    for worker_id in (1, 2, 1):
        status, body = deployment.ask(worker_id)
        found = json.loads(body)
        assert (status, found["choices"][0]["message"]["content"], found["choices"][0]["finish_reason"]) == (
            200,
            "ab",
            "length",
        )
        assert found["usage"] == {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
        assert found["nvext"]["worker_id"]["decode_worker_id"] == worker_id
    assert deployment.router.sent() == {(1, DIRECT): 2, (2, REQUEST_PLANE): 1}
    assert (deployment.planes[1].requests, deployment.planes[2].requests) == (0, 1)
    assert (one.ranks, two.ranks) == (["1", "1"], ["1"])
    assert deployment.router.running() == {}


def test_without_the_variable_everything_goes_by_the_request_plane(
    tmp_path: Path, engine: Callable[..., Engine]
) -> None:
    with contextlib.ExitStack() as stack:
        plain = Deployment(stack, tmp_path, direct=False)
        plain.join(1, engine(), advertised=True)
        assert plain.ask(1)[0] == 200
        assert plain.router.sent() == {(1, REQUEST_PLANE): 1}


@pytest.mark.parametrize("advertised", [True, False])
def test_a_worker_that_dies_mid_stream(deployment: Deployment, engine: Callable[..., Engine], advertised: bool) -> None:
    running: list[dict[tuple[int, int], int]] = []

    def half(_: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        yield answer("a")
        running.append(deployment.router.running())
        context.abort(grpc.StatusCode.UNAVAILABLE, "the engine is gone")

    broken, sound = engine(half), engine()
    deployment.join(1, broken, advertised)
    deployment.join(2, sound, advertised)
    status, body = deployment.ask(1, stream=True)
    events = [line.removeprefix("data: ") for line in body.splitlines() if line]
    assert status == 200
    assert json.loads(events[0])["choices"][0]["delta"]["content"] == "a"
    assert json.loads(events[1])["error"] == {
        "message": "the engine is gone",
        "type": "Service Unavailable",
        "code": 503,
    }
    assert events[2:] == ["[DONE]"]
    assert running == [{(1, 1): 1}]
    assert deployment.router.running() == {}, "the booking is released before the error reaches the client"
    assert deployment.ask(2)[0] == 200, "the others go on"


def test_a_killed_engine_ends_its_requests_and_is_dropped_with_its_worker(
    deployment: Deployment, engine: Callable[..., Engine]
) -> None:
    entered, never = threading.Event(), threading.Event()

    def endless(*_: Any) -> Iterator[Any]:
        yield answer("a")
        entered.set()
        never.wait(20)

    broken = engine(endless)
    deployment.join(1, broken, advertised=True)
    found: list[tuple[int, str]] = []
    client = threading.Thread(target=lambda: found.append(deployment.ask(1)))
    client.start()
    assert entered.wait(20)
    broken.close()
    never.set()
    client.join(20)
    assert found[0][0] in (500, 503)
    assert deployment.router.running() == {}
    del deployment.workers[1]
    deployment.changed()
    assert deployment.registry.get(1) is None
    assert deployment.ask(1)[0] == 404


@pytest.mark.parametrize(
    ("worker_id", "rank", "more", "status"),
    [(9, 0, {}, 400), (1, 7, {}, 500), (1, 0, {"model": "other"}, 404), (1, 0, {"messages": 3}, 400)],
)
def test_what_cannot_be_asked(
    deployment: Deployment,
    engine: Callable[..., Engine],
    worker_id: int,
    rank: int,
    more: dict[str, object],
    status: int,
) -> None:
    deployment.join(1, engine(), advertised=True)
    assert deployment.ask(worker_id, rank, **more)[0] == status
    assert deployment.router.running() == {}


def test_the_frontend_is_seen_as_dynamos(deployment: Deployment, engine: Callable[..., Engine]) -> None:
    deployment.join(5, engine(), advertised=True)
    base = f"http://127.0.0.1:{deployment.port}"
    with urllib.request.urlopen(f"{base}/v1/models", timeout=20) as found:
        assert [model["id"] for model in json.loads(found.read())["data"]] == ["tiny"]
    with urllib.request.urlopen(f"{base}/metrics", timeout=20) as found:
        lines = [
            line for line in found.read().decode().splitlines() if line.startswith("dynamo_component_router_worker_reg")
        ]
    assert [line.split("dp_rank=")[1][:3] for line in lines] == ['"0"', '"1"']
    assert all('router_worker_id="5"' in line and line.endswith("} 1") for line in lines)
