"""One simulated SGLang process, seen from outside."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Callable
from typing import Any

import grpc
import pytest

Launch = Callable[..., Any]
PROMPT = list(range(10, 26))  # four blocks of four


def kv_events(port: int, topic: str = "kv-events") -> list[str]:
    return ["--kv-events-config", json.dumps({"publisher": "zmq", "topic": topic, "endpoint": f"tcp://*:{port}"})]


def first_batch(server: Any, subscriber: Any, rank: int) -> Any:
    """The first batch of a rank. Prompts are sent until it is there: what precedes the subscription is lost."""
    prompts = iter(range(1000, 30000))
    return server.until(
        "an event arrives", lambda: server.generate(rank, [next(prompts)] * 4) and subscriber.batch(0.1)
    )


def text(tokens: list[int], model: Any) -> str:
    vocab = json.loads((model / "tokenizer.json").read_text())["model"]["vocab"]
    return "".join({number: character for character, number in vocab.items()}[token] for token in tokens)


def test_ordinary_dp_serves_every_rank(launch: Launch, subscribe: Any, ports: Any, model: Any) -> None:
    base = ports(2)
    server = launch("--dp-size", 2, "--incremental-streaming-output", *kv_events(base)).ready()
    tokens, meta = server.generate(1, PROMPT, rid="abc", max_new_tokens=6)
    assert text(tokens, model) == "r1abcd"
    finish = {"type": "length", "length": 6}
    expected = {"id": "abc", "prompt_tokens": 16, "cached_tokens": 0, "completion_tokens": 6, "finish_reason": finish}
    assert meta == expected
    assert server.generate(1, PROMPT)[1]["cached_tokens"] == 16
    assert server.generate(0, PROMPT)[1]["cached_tokens"] == 0
    assert len(server.generate(0, PROMPT, max_new_tokens=None)[0]) == 16
    unrouted = {text(server.generate(None, PROMPT)[0], model) for _ in range(2)}
    assert unrouted == {"r0ab", "r1ab"}
    assert "Prefill: rid=abc dp_rank=1 prompt_tokens=16 cached_tokens=0" in server.log

    for rank in (0, 1):
        subscriber = subscribe(base + rank, "kv-events")
        topic, _, events, dp_rank = first_batch(server, subscriber, rank)
        assert (topic, dp_rank, events[0][0], events[0][4:]) == ("kv-events", rank, "BlockStored", [4, None, "GPU"])
        assert server.get("/flush_cache")[0] == 200
        while events != [["AllBlocksCleared"]]:
            _, _, events, dp_rank = subscriber.batch(10)
        assert dp_rank == rank
    assert server.generate(1, PROMPT)[1]["cached_tokens"] == 0


def test_what_it_tells(launch: Launch, ports: Any, model: Any) -> None:
    base = ports()
    server = launch("--context-length", 512, *kv_events(base)).ready()
    assert server.get("/health_generate")[0] == 200
    assert server.get("/nothing")[0] == 404
    (card,) = json.loads(server.get("/v1/models")[1])["data"]
    assert (card["id"], card["max_model_len"]) == ("tiny", 512)
    info = server.info()
    assert info == json.loads(server.get("/get_server_info")[1])
    assert (info["port"], info["served_model_name"], info["page_size"]) == (server.port, "tiny", 4)
    assert [source["endpoint"] for source in info["kv_event_sources"]] == [f"tcp://127.0.0.1:{base}"]
    assert server.call("HealthCheck").healthy
    assert json.loads(server.call("GetModelInfo").json_info)["tokenizer_path"] == str(model)
    (listed,) = server.call("ListModels").models
    assert (listed.id, listed.max_model_len) == ("tiny", 512)


def test_requests_that_cannot_be_served(launch: Launch) -> None:
    server = launch("--context-length", 32).ready()
    for rank, tokens, message in ((3, PROMPT, "outside [0, 1)"), (0, PROMPT * 2, "exceeds the maximum allowed length")):
        with pytest.raises(grpc.RpcError) as error:
            server.generate(rank, tokens)
        assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert message in error.value.details()
    assert server.generate(0, PROMPT, max_new_tokens=99)[1]["completion_tokens"] == 16  # what the context leaves


@pytest.mark.parametrize("fields", [{"rid": "long"}, {"abort_all": True}])
def test_abort_ends_a_request(launch: Launch, fields: dict[str, Any]) -> None:
    server = launch().ready()
    with server.stream(0, PROMPT, rid="long", max_new_tokens=30000) as responses:
        first = next(responses)
        assert not first.finished
        assert server.call("Abort", **fields).success
        *_, last = responses
    assert last.finished
    assert json.loads(last.meta_info["finish_reason"])["type"] == "abort"


def test_stream_interval_and_a_cache_that_forgets(launch: Launch) -> None:
    server = launch("--stream-interval", 3, "--max-total-tokens", 16).ready()
    with server.stream(0, PROMPT, max_new_tokens=7) as responses:
        assert [len(response.output_ids) for response in responses] == [3, 3, 1]
    assert server.generate(0, PROMPT)[1]["cached_tokens"] == 16
    server.generate(0, [7] * 8)
    assert server.generate(0, PROMPT)[1]["cached_tokens"] == 8


def test_no_prefix_cache(launch: Launch) -> None:
    server = launch("--disable-radix-cache").ready()
    assert [server.generate(0, PROMPT)[1]["cached_tokens"] for _ in range(2)] == [0, 0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(launch: Launch, number: signal.Signals) -> None:
    server = launch().ready()
    with server.stream(0, PROMPT, max_new_tokens=30000) as responses:
        next(responses)
        server.process.send_signal(number)
        assert server.ended() == 0
    assert "Gracefully exiting" in server.last_line


def test_bad_usage_and_refused_sizes(launch: Launch) -> None:
    unknown = launch("--dump-config-to", "/tmp/x")
    assert unknown.ended() == 2
    assert unknown.last_line == "launch_server.py: error: unrecognized arguments: --dump-config-to /tmp/x"
    fault = launch(fault="explode")
    assert fault.ended() == 2
    assert "unknown fault 'explode'; known: report_dp_size" in fault.last_line
    sizes = launch("--tp-size", 3, "--dp-size", 2, "--enable-dp-attention")
    assert sizes.ended() == 1
    assert sizes.last_line.startswith("AssertionError: tp_size (3) must be divisible by dp_size (2)")
    model = launch("--model-path", "/nonexistent")
    assert model.ended() == 1
    assert "/nonexistent is not a local folder" in model.last_line


@pytest.mark.parametrize("taken", ["--port", "--grpc-port", "--nccl-port", "--kv-events-config", "--dist-init-addr"])
def test_a_taken_port_is_named(launch: Launch, ports: Any, taken: str) -> None:
    port = ports()
    value = {"--kv-events-config": kv_events(port)[1], "--dist-init-addr": f"127.0.0.1:{port}"}.get(taken, port)
    with socket.create_server(("0.0.0.0", port)):
        server = launch(taken, value)
        assert server.ended() == 1
    assert str(port) in server.last_line
    assert "address already in use" in server.last_line.lower()


def test_ordinary_dp_with_a_fixed_nccl_port_fails_as_it_does(launch: Launch, ports: Any) -> None:
    port = ports()
    server = launch("--dp-size", 2, "--nccl-port", port)
    assert server.ended() == 1
    assert f"port: {port} (--nccl-port)" in server.last_line
    launch("--tp-size", 2, "--dp-size", 2, "--enable-dp-attention", "--nccl-port", port).ready()


def test_fault_never_ready(launch: Launch) -> None:
    server = launch(fault="never_ready")
    assert not server.call("HealthCheck").healthy
    assert server.get("/health")[0] == 503
    assert server.info()["dp_size"] == 1


@pytest.mark.parametrize(("fault", "code"), [("exit_at_start=5", 5), ("exit_after=0:7", 7), ("exit_after=0", 1)])
def test_fault_exits(launch: Launch, fault: str, code: int) -> None:
    server = launch(fault=fault)
    assert server.ended() == code
    assert server.last_line == f"simulated fault: {fault.partition('=')[0]}"
    assert ("ready to roll" in server.log) == fault.startswith("exit_after")


def test_fault_error_500(launch: Launch) -> None:
    server = launch("--dp-size", 2, fault="error_500=1").ready()
    server.generate(0, PROMPT)
    with pytest.raises(grpc.RpcError) as error:
        server.generate(1, PROMPT)
    assert error.value.code() == grpc.StatusCode.INTERNAL


def test_fault_silent_kv_keeps_one_rank_back(launch: Launch, subscribe: Any, ports: Any) -> None:
    base = ports(2)
    server = launch("--dp-size", 2, *kv_events(base), fault="silent_kv=0").ready()
    silent, heard = subscribe(base), subscribe(base + 1)
    assert first_batch(server, heard, 1)[3] == 1
    server.generate(0, PROMPT)
    assert server.generate(0, PROMPT)[1]["cached_tokens"] == 16
    assert silent.batch(0) is None
    assert len(server.info()["kv_event_sources"]) == 2


def test_faults_of_the_events(launch: Launch, subscribe: Any, ports: Any) -> None:
    base = ports()
    server = launch(*kv_events(base), fault="wrong_topic,bad_rank").ready()
    topic, _, _, dp_rank = first_batch(server, subscribe(base), 0)
    assert (topic, dp_rank) == ("not-kv-events", 1)
    assert server.info()["kv_event_sources"][0]["topic"] == "kv-events"
