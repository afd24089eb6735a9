"""Prefill and decode engines: both legs of a request meet in a room, or fail and say why."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import grpc
import pytest

from srtctl.sim.sglang.disaggregation import is_local

Launch = Callable[..., Any]
PROMPT = list(range(10, 26))
HOST = "127.0.0.1"
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
DP2 = ("--dp-size", 2)
FOR_EVER = 600  # longer than any test: what ends before has been told


@dataclass(frozen=True)
class Pair:
    """A prefill and a decode engine, ready."""

    prefill: Any
    decode: Any
    port: int
    threads: ThreadPoolExecutor

    def send(self, rank: int | None, room: int, prompt: list[int] = PROMPT, rid: str = "") -> list[Future[Any]]:
        """Start the decode leg, on its engine's rank 0, and the prefill leg on `rank`."""
        options: dict[str, Any] = {"rid": rid, "bootstrap": (HOST, self.port, room)}
        decode = self.threads.submit(self.decode.generate, 0, prompt, **options)
        return [decode, self.threads.submit(self.prefill.generate, rank, prompt, max_new_tokens=1, **options)]


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


@pytest.fixture
def prefill(launch: Launch, ports: Any) -> Callable[..., tuple[Any, int]]:
    """Start a prefill engine; returns it and its bootstrap port."""

    def start(*flags: object, **options: Any) -> tuple[Any, int]:
        port = ports()
        mode = ("--disaggregation-mode", "prefill", "--disaggregation-bootstrap-port", port)
        return launch(*mode, *flags, **options), port

    return start


@pytest.fixture
def pair(launch: Launch, prefill: Any, threads: ThreadPoolExecutor) -> Callable[..., Pair]:
    """`pair("--prefill-flag", ..., decode=("--decode-flag", ...), fault="of prefill", transfer_timeout=seconds)`."""

    def start(*flags: object, decode: tuple[object, ...] = (), fault: str = "", **options: Any) -> Pair:
        first, port = prefill(*flags, fault=fault, **options)
        second = launch("--disaggregation-mode", "decode", *decode, **options)
        return Pair(first.ready(), second.ready(), port, threads)

    return start


def abort(leg: Future[Any]) -> str:
    """The message of a leg that ended with status 500."""
    tokens, meta = leg.result()
    reason = meta["finish_reason"]
    assert (tokens, reason["type"], reason["status_code"]) == ([], "abort", 500)
    return str(reason["message"])


def token_counts(legs: list[Future[Any]]) -> list[int]:
    return [len(leg.result()[0]) for leg in legs]


def kv_events(port: int) -> tuple[str, str]:
    events = {"publisher": "zmq", "topic": "kv-events", "endpoint": f"tcp://*:{port}"}
    return ("--kv-events-config", json.dumps(events))


@pytest.mark.parametrize("rank", [0, 1])
def test_both_legs_of_a_request_meet_in_its_room(pair: Any, subscribe: Any, ports: Any, rank: int) -> None:
    base = ports(2)
    both = pair(*DP2, *kv_events(base), decode=DP2)
    subscriber = subscribe(base + rank)
    assert token_counts(both.send(rank, 100 + rank, rid="abc")) == [4, 1]
    address = f"{HOST}:{both.port}"
    sizes = "prompt_tokens=16 cached_tokens=0 max_new_tokens"
    room = f"room={100 + rank}"
    assert f"Prefill: rid=abc dp_rank={rank} {sizes}=1 {room} bootstrap={address}\n" in both.prefill.log
    assert f"Decode: rid=abc dp_rank=0 {sizes}=4 {room} kv_from={address} prefill_dp_rank={rank}\n" in both.decode.log

    decoded, filled = both.send(rank, 200 + rank)
    assert filled.result()[1]["cached_tokens"] == 16
    assert decoded.result()[1]["cached_tokens"] == 0  # nobody wants to hear of the decode engine's cache
    other = both.send(None, 301 - rank)[1]  # without a routed rank the room decides
    assert other.result()[1]["cached_tokens"] == 0

    prompts = iter(range(1000, 30000))  # what precedes the subscription is lost

    def batch() -> Any:
        return token_counts(both.send(rank, 400 + rank, [next(prompts)] * 4)) and subscriber.batch(0.1)

    assert both.prefill.until("an event arrives", batch)[3] == rank


def test_a_decode_engine_with_kv_events_has_a_prefix_cache(pair: Any, ports: Any) -> None:
    both = pair(decode=kv_events(ports()))
    assert [both.send(0, room)[0].result()[1]["cached_tokens"] for room in (1, 2)] == [0, 16]


@pytest.mark.parametrize("mode", ["prefill", "decode"])
def test_a_request_without_a_room_is_the_clients_fault(launch: Launch, ports: Any, mode: str) -> None:
    server = launch("--disaggregation-mode", mode, "--disaggregation-bootstrap-port", ports()).ready()
    with pytest.raises(grpc.RpcError) as error:
        server.generate(0, PROMPT)
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "Disaggregated request received without bootstrap room id" in error.value.details()


@pytest.mark.parametrize(("host", "shift"), [(HOST, 1), ("192.0.2.1", 0)])
def test_prefill_refuses_an_address_that_is_not_its_own(prefill: Any, threads: Any, host: str, shift: int) -> None:
    server, port = prefill()
    server.ready()
    message = abort(threads.submit(server.generate, 0, PROMPT, rid="x", bootstrap=(host, port + shift, 8)))
    assert f"rid=x bootstrap_room=8 bootstrap_addr={host}:{port + shift} with" in message
    assert f"not this engine's bootstrap server, which has port {port} here" in message
    assert f"Failed: rid=x {message}" in server.log
    assert "Prefill: rid=x" not in server.log


def test_a_wrong_rank_fails_both_legs(pair: Any) -> None:
    both = pair(*DP2, transfer_timeout=FOR_EVER)
    decoded, filled = map(abort, both.send(1, 42, rid="x"))
    what = f"for request rid=x bootstrap_room=42 bootstrap_addr={HOST}:{both.port}"
    assert filled.startswith(f"Prefill transfer failed {what}")
    assert decoded.startswith(f"Decode transfer failed {what}")
    conflict = "follow_bootstrap_room conflict: dispatched to dp_rank 1 but bootstrap_room 42 implies dp_rank 0"
    assert conflict in filled
    assert conflict in decoded


@pytest.mark.parametrize("rank", [0, 1])
def test_other_load_balancing_frees_rooms_from_ranks(pair: Any, rank: int) -> None:
    both = pair(*DP2, "--load-balance-method", "round_robin")
    assert token_counts(both.send(rank, 42)) == [4, 1]
    assert f"room=42 kv_from={HOST}:{both.port} prefill_dp_rank={rank}\n" in both.decode.log


def test_what_the_legs_wait_for_in_vain(pair: Any, threads: Any, ports: Any) -> None:
    both, nobody = pair(transfer_timeout=0.5), ports()
    legs = [
        threads.submit(server.generate, 0, PROMPT, bootstrap=(HOST, port, room))
        for server, port, room in (
            (both.decode, both.port, 5),
            (both.decode, nobody, 6),
            (both.prefill, both.port, 7),
        )
    ]
    never, unreachable, left = map(abort, legs)
    assert f"bootstrap_room=5 bootstrap_addr={HOST}:{both.port} with" in never
    assert "timed out after 0.5s: the prefill engine has not offered this room" in never
    assert f"bootstrap_room=6 bootstrap_addr={HOST}:{nobody} with" in unreachable
    assert "could not ask the bootstrap server: [Errno 111] Connection refused" in unreachable
    assert f"bootstrap_room=7 bootstrap_addr={HOST}:{both.port} with" in left
    assert "no decode engine came for it within 0.5s" in left


def test_a_failure_elsewhere_in_the_prefill_engine_reaches_the_decode_leg(pair: Any) -> None:
    decoded, filled = pair(fault="error_500=0", transfer_timeout=FOR_EVER).send(0, 3)
    assert isinstance(filled.exception(), grpc.RpcError)
    assert "the prefill engine says: simulated fault: error_500=0" in abort(decoded)


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_a_leg_that_waits_can_be_aborted(pair: Any, threads: Any, role: str) -> None:
    both = pair(transfer_timeout=FOR_EVER)
    server = getattr(both, role)
    leg = threads.submit(server.generate, 0, PROMPT, rid="x", bootstrap=(HOST, both.port, 3))
    server.until("it is aborted", lambda: server.call("Abort", rid="x") and leg.done())
    assert leg.result()[1]["finish_reason"]["message"] == "Aborted by AbortRequest."
    assert "Aborted: rid=x\n" in server.log


def test_page_sizes_must_agree(pair: Any, threads: Any) -> None:
    both = pair(decode=("--page-size", 8), transfer_timeout=FOR_EVER)
    message = abort(threads.submit(both.decode.generate, 0, PROMPT, bootstrap=(HOST, both.port, 3)))
    assert "Page size mismatch: prefill server has page_size=4, but decode server has page_size=8" in message


def test_the_bootstrap_server(prefill: Any, ports: Any, launch: Launch) -> None:
    flags = ["--tp-size", 4, *DP2, "--enable-dp-attention", "--nnodes", 2, "--dist-init-addr", f"{HOST}:{ports()}"]
    leader, port = prefill(*flags)

    def get(path: str) -> tuple[int, str]:
        try:
            with OPENER.open(f"http://{HOST}:{port}{path}", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    assert leader.until("it listens", lambda: get("/health")) == (200, "OK")
    assert get("/route") == (503, "Prefill server not fully registered yet.")  # the other node is not there yet
    mode = ("--disaggregation-mode", "prefill", "--disaggregation-bootstrap-port", port)
    launch(*flags, *mode, "--node-rank", 1).ready()  # the same port on the same host: followers leave it alone
    leader.ready()
    status, sizes = get("/route")
    assert status == 200
    assert {"attn_tp_size": 2, "dp_size": 2, "pp_size": 1, "page_size": 4}.items() <= json.loads(sizes).items()
    assert get("/nothing")[0] == 404
    assert leader.info()["disaggregation_bootstrap_port"] == port


def test_a_taken_bootstrap_port_is_named(prefill: Any, ports: Any) -> None:
    port = ports()
    with socket.create_server(("0.0.0.0", port)):
        server, _ = prefill("--disaggregation-bootstrap-port", port)
        assert server.ended() == 1
    assert str(port) in server.last_line
    assert "address already in use" in server.last_line


def test_an_invalid_timeout_is_the_default(launch: Launch) -> None:
    server = launch("--disaggregation-mode", "decode", transfer_timeout="soon").ready()
    assert "Invalid value for SGLANG_DISAGGREGATION_WAITING_TIMEOUT: 'soon' is not a number" in server.log


def test_local_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [is_local(host) for host in ("127.0.0.1", "localhost", "192.0.2.1")] == [True, True, False]

    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert not is_local("leader")


def test_fault_ordinary_dp_bootstrap(pair: Any) -> None:
    both = pair(*DP2, fault="ordinary_dp_bootstrap", transfer_timeout=FOR_EVER)
    assert token_counts(both.send(0, 10)) == [4, 1]
    for leg in both.send(1, 11):
        assert "dispatched to dp_rank 0 but bootstrap_room 11 implies dp_rank 1" in abort(leg)


def test_fault_ordinary_dp_bootstrap_spares_attention_dp(pair: Any) -> None:
    both = pair(*DP2, "--tp-size", 2, "--enable-dp-attention", fault="ordinary_dp_bootstrap")
    assert token_counts(both.send(1, 11)) == [4, 1]
