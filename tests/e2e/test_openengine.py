"""OpenEngine, served by each simulated engine: aggregated, prefill/decode, drain, abort, unsupported role.

The clients are real gRPC clients and, for whole requests, ai-dynamo 1.6.1's own OpenEngine sidecar behind its frontend:
the independent witness that the servers speak the protocol. Nothing is mocked. As root everything runs in a network
namespace of its own, because Dynamo's event sockets listen on all addresses.
"""

from __future__ import annotations

import json
import signal
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc
import pytest

from tests.e2e.sim_stack import PYTHON, Stack, get
from tests.openengine_client import Client, token_count

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("private_network")]

READY, DRAINING = 2, 4
ABORTED, ALREADY_FINISHED = 1, 2
LENGTH, CANCELLED = 2, 3
LONG = 2000
"""Tokens of a request that runs for seconds: at 2 ms a token."""


@dataclass(frozen=True)
class Kind:
    """An engine: what it calls itself, how it is started, and what marks its handoff."""

    name: str
    command: Callable[[Stack, str, int], tuple[list[object], dict[str, str]]]
    profile: str


def trtllm(stack: Stack, role: str, port: int) -> tuple[list[object], dict[str, str]]:
    file = stack.folder / f"trtllm-{role}.yaml"
    file.write_text(json.dumps({"cache_transceiver_config": {"backend": "UCX"}}))
    argv = [
        PYTHON,
        "-m",
        "tensorrt_llm.commands.serve",
        stack.image / "model",
        "--grpc",
        "--grpc-protocol",
        "openengine",
    ]
    argv += ["--host", "127.0.0.1", "--port", port, "--extra_llm_api_options", file]
    return [*argv, *(["--server_role", {"prefill": "CONTEXT", "decode": "GENERATION"}[role]] if role else [])], {}


def sglang(stack: Stack, role: str, port: int) -> tuple[list[object], dict[str, str]]:
    argv: list[object] = [PYTHON, "-m", "sglang.launch_server", "--model-path", stack.image / "model"]
    argv += ["--host", "127.0.0.1", "--port", next(stack.ports), "--page-size", 16, "--incremental-streaming-output"]
    argv += ["--openengine-host", "127.0.0.1", "--openengine-port", port]
    argv += ["--disaggregation-mode", role] if role else []
    argv += ["--disaggregation-bootstrap-port", next(stack.ports)] if role == "prefill" else []
    return argv, {"SGLANG_DISAGGREGATION_WAITING_TIMEOUT": "1"}


def vllm(stack: Stack, role: str, port: int) -> tuple[list[object], dict[str, str]]:
    argv: list[object] = [PYTHON, "-m", "vllm.entrypoints.cli.main", "serve", stack.image / "model"]
    argv += ["--host", "127.0.0.1", "--port", next(stack.ports)]
    argv += ["--openengine-host", "127.0.0.1", "--openengine-port", port]
    kv_role = {"prefill": "kv_producer", "decode": "kv_consumer"}.get(role)
    transfer = json.dumps({"kv_connector": "NixlConnector", "kv_role": kv_role})
    argv += ["--kv-transfer-config", transfer] if kv_role else []
    side = {"VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1", "VLLM_NIXL_SIDE_CHANNEL_PORT": str(next(stack.ports))}
    return argv, {"VLLM_USE_RUST_FRONTEND": "1", **side}


ENGINES = (
    Kind("tensorrt_llm", trtllm, "tensorrt_llm.disaggregated_params.v1"),
    Kind("sglang", sglang, "sglang.bootstrap.v1"),
    Kind("vllm", vllm, "vllm.kv_transfer_params.v1"),
)
every_engine = pytest.mark.parametrize("kind", ENGINES, ids=[kind.name for kind in ENGINES])


def start(stack: Stack, kind: Kind, role: str = "") -> str:
    """The address at which an engine of that role serves OpenEngine."""
    port = next(stack.ports)
    argv, env = kind.command(stack, role, port)
    stack.start(f"engine-{role}", *argv, **env)
    address = f"127.0.0.1:{port}"
    with Client(address) as client:
        stack.until(f"{kind.name} {role} is ready", lambda: client.call("Health").state == READY)
    return address


def sidecar(stack: Stack, address: str, role: str = "") -> None:
    argv = [PYTHON, "-m", "dynamo.trtllm.sidecar", "--grpc-endpoint", address, "--model-path", stack.image / "model"]
    argv += ["--disaggregation-mode", role] if role else []
    stack.start(f"sidecar-{role}", *argv, DYN_SYSTEM_PORT=str(next(stack.ports)))


def chat(stack: Stack, text: str) -> tuple[int, Any]:
    body = {"model": str(stack.image / "model"), "messages": [{"role": "user", "content": text}], "max_tokens": 8}
    status, answer = get(f"http://127.0.0.1:{stack.http_port}/v1/chat/completions", body)
    return status, json.loads(answer)


def listed(stack: Stack) -> bool:
    return bool(json.loads(get(f"http://127.0.0.1:{stack.http_port}/v1/models")[1])["data"])


def failure(stream: Any) -> tuple[grpc.StatusCode, str]:
    """The status with which a stream ends before it says anything."""
    with pytest.raises(grpc.RpcError) as found:
        list(stream)
    return found.value.code(), str(found.value.details())


@every_engine
def test_aggregated_behind_the_sidecar_of_dynamo(stack: Stack, kind: Kind) -> None:
    address = start(stack, kind)
    with Client(address) as client:
        about, model = client.call("GetServerInfo"), client.call("GetModelInfo", model=str(stack.image / "model"))
    assert (about.engine_name, about.engine_role, about.schema_revision) == (kind.name, 1, 1)
    assert model.max_context_length == 32768
    sidecar(stack, address)
    stack.until("the model is listed", lambda: listed(stack))
    status, answer = stack.until("it answers", lambda: (found := chat(stack, "hello"))[0] == 200 and found)
    assert status == 200
    assert answer["choices"][0]["message"]["content"] == "r0abcdef"
    assert answer["usage"]["completion_tokens"] == 8
    rid = answer["id"].removeprefix("chatcmpl-")
    assert f"rid={rid} " in stack.log("engine-")


@every_engine
def test_prefill_and_decode_behind_the_sidecars_of_dynamo(stack: Stack, kind: Kind) -> None:
    for role in ("prefill", "decode"):
        sidecar(stack, start(stack, kind, role), role)
    stack.until("it answers", lambda: chat(stack, "hello")[0] == 200)
    rids = set()
    for _ in range(4):
        status, answer = chat(stack, uuid.uuid4().hex)
        assert status == 200, answer
        assert len(answer["choices"][0]["message"]["content"]) == 8
        rids.add(answer["id"].removeprefix("chatcmpl-"))
    for rid in rids:
        assert f"Prefill: rid={rid} " in stack.log("engine-prefill")
        assert f"Decode: rid={rid} " in stack.log("engine-decode")


@every_engine
def test_the_session_leads_to_the_cache_and_a_wrong_one_fails(bare_stack: Stack, kind: Kind) -> None:
    prefill, decode = (start(bare_stack, kind, role) for role in ("prefill", "decode"))
    with Client(prefill) as first, Client(decode) as second:
        assert first.call("GetServerInfo").engine_role == 2
        assert second.call("GetServerInfo").engine_role == 3
        [ready] = first.generate("r1", 40, 1, context_only=True)
        session = ready.prefill_ready.kv_session
        assert session.handoff_profile == first.call("GetServerInfo").kv_connector.handoff_profile == kind.profile
        assert session.attributes_struct.fields
        answers = list(second.generate("r1", 40, 6, session=session))
        assert token_count(answers) == 6
        assert answers[-1].finished.reason == LENGTH
        # It was taken: a second request for the same cache finds nothing
        [again] = second.generate("r2", 40, 6, session=session)
        assert again.WhichOneof("event") == "error"
        session.attributes_struct.Clear()
        [foreign] = second.generate("r3", 40, 6, session=session)
        assert "none of" in foreign.error.message


@every_engine
def test_an_abort_ends_the_stream_and_may_be_repeated(bare_stack: Stack, kind: Kind) -> None:
    with Client(start(bare_stack, kind)) as client:
        stream = client.generate("r1", 20, LONG)
        next(stream)
        assert client.call("Abort", request_id="r1").status == ABORTED
        rest = list(stream)
        assert rest[-1].finished.reason == CANCELLED
        assert len(rest) < LONG
        assert [client.call("Abort", request_id="r1").status for _ in range(2)] == [ALREADY_FINISHED] * 2
        with pytest.raises(grpc.RpcError) as unknown:
            client.call("Abort", request_id="never")
        assert unknown.value.code() is grpc.StatusCode.NOT_FOUND
        assert token_count(client.generate("r2", 20, 4)) == 4


@every_engine
def test_a_client_that_goes_away_aborts_its_request(bare_stack: Stack, kind: Kind) -> None:
    with Client(start(bare_stack, kind)) as client:
        stream = client.generate("r1", 20, LONG)
        next(stream)
        stream.cancel()
        bare_stack.until("it is over", lambda: client.call("Abort", request_id="r1").status == ALREADY_FINISHED)


@every_engine
def test_a_drain_lets_streams_end_and_refuses_new_work(bare_stack: Stack, kind: Kind) -> None:
    with Client(start(bare_stack, kind)) as client:
        stream = client.generate("r1", 20, LONG)
        next(stream)
        progress = client.drain(stop_accepting_new_requests=True)
        assert (next(progress).in_flight_requests, client.call("Health").state) == (1, DRAINING)
        assert failure(client.generate("r2", 20, 4))[0] is grpc.StatusCode.UNAVAILABLE
        answers = list(stream)
        assert token_count(answers) == LONG - 1
        assert answers[-1].finished.reason == LENGTH
        last = list(progress)[-1]
        assert (last.state, last.in_flight_requests, last.open_kv_sessions) == (3, 0, 0)


@every_engine
def test_a_stopped_engine_drains_before_it_ends(bare_stack: Stack, kind: Kind) -> None:
    with Client(start(bare_stack, kind)) as client:
        stream = client.generate("r1", 20, LONG)
        next(stream)
        process = bare_stack.processes["engine-"]
        process.send_signal(signal.SIGTERM)
        bare_stack.until("it drains", lambda: client.call("Health").state == DRAINING)
        assert failure(client.generate("r2", 20, 4))[0] is grpc.StatusCode.UNAVAILABLE
        answers = list(stream)
        assert token_count(answers) == LONG - 1
        assert answers[-1].finished.reason == LENGTH
        assert process.wait(10) == 0


@every_engine
@pytest.mark.parametrize("role", ["", "prefill", "decode"])
def test_a_request_for_another_role_is_refused(bare_stack: Stack, kind: Kind, role: str) -> None:
    """Before it is accepted: a status, and no word on the stream."""
    with Client(start(bare_stack, kind, role)) as client:
        if role:
            code, why = failure(client.generate("r1", 20, 4))
        else:
            code, why = failure(client.generate("r1", 20, 1, context_only=True))
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert f"this engine is {role or 'agg'}" in why
