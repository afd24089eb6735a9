"""The simulated vLLM as a process: health, requests, KV events and the handover, over real gRPC and ZMQ clients."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from vllm_server import events

from srtctl.sim.vllm.messages import INFERENCE, NOT_SERVING, SERVING

Launch = Callable[..., Any]
PROMPT = list(range(10, 26))
LENGTH, ABORTED = 1, 3
NIXL = ("--kv-transfer-config", '{"kv_connector":"NixlConnector","kv_role":"kv_both"}')


def side_channel(port: int) -> dict[str, str]:
    return {"VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1", "VLLM_NIXL_SIDE_CHANNEL_PORT": str(port)}


def test_a_server_tells_what_it_is(launch_vllm: Launch) -> None:
    server = launch_vllm("--served-model-name", "tiny", "small", "--data-parallel-size", 2).ready()
    info, model = server.call("GetServerInfo"), server.call("GetModelInfo")
    assert (info.api_version, info.kv_block_size, info.parallelism.data_parallel_size_local) == ("vllm", 4, 2)
    assert (model.served_model_name, list(model.served_model_aliases)) == ("tiny", ["small"])
    assert model.supports_token_ids_input
    assert server.sources() == {}
    assert [server.status(name) for name in ("", "vllm.Control", INFERENCE)] == [SERVING] * 3
    with pytest.raises(grpc.RpcError) as error:
        server.status("other")
    assert error.value.code() == grpc.StatusCode.NOT_FOUND
    assert server.get("/v1/models")[0] == 200
    assert list(server.call("ListLoras").adapters) == []
    server.process.terminate()
    assert server.ended() == 0


def test_the_metadata_picks_the_rank(launch_vllm: Launch) -> None:
    server = launch_vllm("--data-parallel-size", 2).ready()
    for rank in (0, 1, 1):
        text, end = server.generate(rank, PROMPT, max_new_tokens=5)
        assert (text, end.finish_reason, end.num_output_tokens) == (f"r{rank}abc", LENGTH, 5)
    assert {server.generate(None, PROMPT)[0][:2] for _ in range(4)} == {"r0", "r1"}
    for rank, words in (("2", "data_parallel_rank 2 is out of range"), ("x", "x-data-parallel-rank is no rank: 'x'")):
        with pytest.raises(grpc.RpcError) as error:
            server.generate(rank, PROMPT)
        assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert words in error.value.details()


def test_chunks_follow_the_stream_interval(launch_vllm: Launch) -> None:
    server = launch_vllm("--stream-interval", 3).ready()
    with server.stream(0, PROMPT, max_new_tokens=7) as responses:
        received = list(responses)
    assert [len(response.outputs.token_ids) for response in received] == [3, 3, 1]
    assert received[0].prompt_info.num_prompt_tokens == len(PROMPT)


def test_a_prompt_too_long_is_the_clients_fault(launch_vllm: Launch) -> None:
    server = launch_vllm("--max-model-len", 16).ready()
    with pytest.raises(grpc.RpcError) as error:
        server.generate(0, PROMPT)
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "maximum context length is 16 tokens" in error.value.details()


def test_abort_ends_a_request_and_forgives_unknown_ones(launch_vllm: Launch) -> None:
    server = launch_vllm().ready()
    with server.stream(0, PROMPT, rid="long", max_new_tokens=20000) as responses:
        next(responses)
        for _ in range(2):
            server.call("Abort", request_ids=["long", "nobody"])
        last = list(responses)[-1]
    assert last.outputs.finish_info.finish_reason == ABORTED


@pytest.mark.parametrize("discovered", [True, False], ids=["discovered", "fixed"])
def test_each_rank_publishes_where_the_sources_say(
    launch_vllm: Launch, subscribe: Any, ports: Any, discovered: bool
) -> None:
    base = 0 if discovered else ports(2)
    server = launch_vllm("--data-parallel-size", 2, *events(base)).ready()
    sources = server.sources()
    found = {rank: int(endpoint.removeprefix("tcp://*:")) for rank, endpoint in sources.items()}
    assert sorted(found) == [0, 1]
    assert len(set(found.values())) == 2
    if not discovered:
        assert found == {0: base, 1: base + 1}
    prompts = itertools.count(100)
    for rank, port in found.items():
        subscriber = subscribe(port, "kv-events")

        def batch(rank: int = rank, subscriber: Any = subscriber) -> Any:
            return server.generate(rank, [next(prompts)] * 8) and subscriber.batch(0.1)

        topic, _, stored, dp_rank = server.until("an event arrives", batch)
        assert (topic, dp_rank, stored[0][0], stored[0][4]) == ("kv-events", rank, "BlockStored", 4)


def test_the_handover_of_a_prompt(launch_vllm: Launch, ports: Any) -> None:
    here, there = ports(4), ports(4)
    sizes = ("--data-parallel-size", 2, "--tensor-parallel-size", 2)
    prefill = launch_vllm(*NIXL, *sizes, **side_channel(here)).ready()
    decode = launch_vllm(*NIXL, *sizes, **side_channel(there)).ready()
    _, end = prefill.generate(1, PROMPT, rid="a", max_new_tokens=1, transfer={"do_remote_decode": True})
    params = dict(end.kv_transfer_params.items())
    assert (params["remote_host"], params["remote_port"], params["tp_size"]) == ("127.0.0.1", here + 2, 2)
    # as Dynamo passes it on: numbers are doubles, the port is text
    given = {**_plain(end.kv_transfer_params), "remote_port": str(here + 2)}
    assert decode.generate(0, PROMPT, rid="a", transfer=given)[0] == "r0ab"
    assert (
        f"Decode: rid=a dp_rank=0 prompt_tokens=16 cached_tokens=0 max_new_tokens=4 kv_from=127.0.0.1:{here + 2}"
        in (decode.log)
    )
    nobody = ports()
    bad = [
        (given, "it keeps no blocks of request a"),  # taken already
        ({**given, "remote_port": there}, "remote engine id mismatch"),  # the decode engine itself
        ({**given, "remote_port": nobody}, f"NIXL handshake with 127.0.0.1:{nobody} failed"),
        ({"do_remote_prefill": True}, "kv_transfer_params cannot be used"),
    ]
    for transfer, words in bad:
        with pytest.raises(grpc.RpcError) as error:
            decode.generate(0, PROMPT, rid="a", transfer=transfer)
        assert error.value.code() == grpc.StatusCode.INTERNAL
        assert words in error.value.details()
        assert words in decode.log
    _, end = prefill.generate(0, PROMPT, rid="b", max_new_tokens=1, transfer={"do_remote_decode": True})
    wrong = {**_plain(end.kv_transfer_params), "remote_block_ids": [[7]]}
    with pytest.raises(grpc.RpcError, match=r"it keeps blocks \[.*\] of request b, not \[7\]"):
        decode.generate(0, PROMPT, rid="b", transfer=wrong)


def test_other_block_sizes_do_not_fit(launch_vllm: Launch, ports: Any) -> None:
    here, there = ports(), ports()
    prefill = launch_vllm(*NIXL, **side_channel(here)).ready()
    decode = launch_vllm(*NIXL, "--block-size", 8, **side_channel(there)).ready()
    _, end = prefill.generate(0, PROMPT, transfer={"do_remote_decode": True})
    with pytest.raises(grpc.RpcError, match="block size 4 there, 8 here"):
        decode.generate(0, PROMPT, transfer=_plain(end.kv_transfer_params))


def test_blocks_that_nobody_takes_expire(launch_vllm: Launch, ports: Any) -> None:
    prefill = launch_vllm(*NIXL, VLLM_NIXL_ABORT_REQUEST_TIMEOUT="0.01", **side_channel(ports())).ready()

    def expired() -> bool:
        prefill.generate(0, PROMPT, rid="b", transfer={"do_remote_decode": True})
        return "Releasing expired KV blocks for request b" in prefill.log

    prefill.until("blocks expire", expired)


def test_without_a_connector_nothing_is_handed_over(launch_vllm: Launch) -> None:
    server = launch_vllm().ready()
    _, end = server.generate(0, PROMPT, transfer={"do_remote_decode": True})
    assert not end.HasField("kv_transfer_params")
    assert "no KVConnector found" in server.log


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        ("error_500=1", grpc.StatusCode.INTERNAL, "error_500=1"),
        ("dead_engine", grpc.StatusCode.UNAVAILABLE, "dead_engine"),
    ],
)
def test_faults_of_requests(launch_vllm: Launch, fault: str, code: grpc.StatusCode, words: str) -> None:
    server = launch_vllm("--data-parallel-size", 2, fault=fault).ready()
    with pytest.raises(grpc.RpcError) as error:
        server.generate(1, PROMPT)
    assert (error.value.code(), words in error.value.details()) == (code, True)


def test_faults_of_a_publisher(launch_vllm: Launch, subscribe: Any) -> None:
    server = launch_vllm(*events(), fault="no_rank,wrong_topic,block_size=2").ready()
    subscriber = subscribe(int(server.sources()[0].rpartition(":")[2]), "")
    prompts = itertools.count(100)
    batch = server.until("an event", lambda: server.generate(0, [next(prompts)] * 8) and subscriber.batch(0.1))
    assert (batch[0], batch[2][0][4], batch[3]) == ("not-kv-events", 2, None)


def test_faults_of_addresses(launch_vllm: Launch, ports: Any) -> None:
    assert launch_vllm(*events(), fault="no_sources").ready().sources() == {}
    base = ports()
    assert launch_vllm(*events(base), fault="wrong_port").ready().sources() == {0: f"tcp://*:{base}"}
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", base), timeout=5).close()


def test_an_engine_that_never_gets_ready(launch_vllm: Launch) -> None:
    server = launch_vllm(fault="never_ready")
    assert server.status() == NOT_SERVING
    assert server.get("/health")[0] == 503


@pytest.mark.parametrize(("fault", "code"), [("exit_at_start=7", 7), ("exit_after=0:3", 3)])
def test_an_engine_that_ends(launch_vllm: Launch, fault: str, code: int) -> None:
    server = launch_vllm(fault=fault)
    assert server.ended() == code
    assert server.last_line == f"simulated fault: {fault.partition('=')[0]}"


def test_addresses_that_are_taken(launch_vllm: Launch, ports: Any) -> None:
    first = launch_vllm(*NIXL, **side_channel(port := ports())).ready()
    second = launch_vllm(*NIXL, **side_channel(port))
    assert second.ended() == 1
    assert f"OSError: cannot listen on the NIXL side channel 127.0.0.1:{port}" in second.last_line
    for flag, taken in (("--grpc-port", first.grpc_port), ("--port", first.port)):
        third = launch_vllm(flag, taken)
        assert third.ended() == 1
        assert third.last_line.startswith("OSError: ")
        assert str(taken) in third.last_line


def _plain(struct: Any) -> dict[str, Any]:
    from google.protobuf import json_format

    return dict(json_format.MessageToDict(struct))
