from __future__ import annotations

import json
import socket
import threading

import pytest

from srtctl.checks.frontend import Answer, chat, parse_metrics
from srtctl.checks.kv_events import prompt
from srtctl.checks.net import Deadline, NetError, fetch

from .scenario import AGG0, AGG1, AGG2, DATA, DECODE0, PREFILL0, answering

RECORDED = json.loads((DATA / "chat.json").read_text())
ALL = {"prefill_worker_id": AGG0, "prefill_dp_rank": 1, "decode_worker_id": AGG0, "decode_dp_rank": 1}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("agg_new", Answer("c9883ac2-53b3-4ea9-bbdb-a27db6dad99e", ALL, 163, 2, 0, 0.0)),
        ("agg_repeat", Answer("9827fa6e-8f08-4571-b9c9-eb0e84b11eca", ALL, 163, 2, 160, 0.9090909090909091)),
        (
            "pd_repeat",
            Answer(
                "77e70b4d-27c1-4057-9eee-8c2f7446f8c6",
                {
                    "prefill_worker_id": PREFILL0,
                    "prefill_dp_rank": 1,
                    "decode_worker_id": DECODE0,
                    "decode_dp_rank": 0,
                },
                163,
                2,
                160,
                0.9090909090909091,
            ),
        ),
    ],
)
def test_recorded_answers(name: str, expected: Answer) -> None:
    with answering(RECORDED[name]["status"], json.dumps(RECORDED[name]["body"])) as url:
        assert chat(url, "tiny", "text", {}, timeout=30) == expected


@pytest.mark.parametrize(
    ("status", "text", "words"),
    [
        *(
            (RECORDED[name]["status"], json.dumps(RECORDED[name]["body"]), words)
            for name, words in [
                ("unknown_worker", "HTTP 400 from the frontend: Invalid request"),
                ("unknown_rank", "HTTP 500 from the frontend: Failed to generate completions"),
                ("unknown_model", "HTTP 404 from the frontend: Model not found"),
            ]
        ),
        (502, "<html>bad gateway</html>", "HTTP 502 from the frontend: <html>bad gateway</html>"),
        (200, "[]", "not a chat completion"),
        (200, "", "not a chat completion"),
        (200, '{"usage": {}}', "not a chat completion"),
    ],
)
def test_anything_else_is_an_error_with_its_text(status: int, text: str, words: str) -> None:
    with answering(status, text) as url, pytest.raises(NetError) as caught:
        chat(url, "tiny", "text", {}, timeout=30)
    assert words in str(caught.value)


def test_an_answer_without_routing_words_says_nobody() -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 1}
    with answering(200, json.dumps({"id": "chatcmpl-1", "usage": usage})) as url:
        assert chat(url, "tiny", "text", {}, timeout=30) == Answer("1", {}, 1, 1, None, None)


def test_recorded_metrics() -> None:
    view = parse_metrics((DATA / "agg-metrics.txt").read_text())
    assert view.registered == {(worker, rank) for worker in (AGG0, AGG1, AGG2) for rank in (0, 1)}
    assert view.source_mismatches == {"decode": 0}
    view = parse_metrics((DATA / "pd-metrics.txt").read_text())
    assert view.registered == {(worker, rank) for worker in (PREFILL0, DECODE0) for rank in (0, 1)}
    assert view.source_mismatches == {"prefill": 0}


@pytest.mark.parametrize(
    ("block_size", "context", "length"),
    [(16, 4096, 384), (16, 0, 384), (1, 4096, 64), (64, 131072, 1536), (128, 4096, 2048), (16, 100, 50)],
)
def test_prompts_are_new_and_several_blocks_long(block_size: int, context: int, length: int) -> None:
    first, second = prompt(block_size, context), prompt(block_size, context)
    assert (len(first), len(second)) == (length, length)
    assert first[:16] != second[:16]


def test_a_proxy_in_the_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with answering(200, "ok") as url:
        assert fetch(url, {}, timeout=30).body == "ok"


def test_no_time_left_is_not_a_request() -> None:
    with pytest.raises(NetError, match="the time for the checks was over"):
        fetch("http://127.0.0.1:1/", timeout=Deadline.after(-1).remaining())


def test_a_deadline_within_another_is_the_earlier() -> None:
    now = Deadline.after(0)
    assert now.within(60) == now
    assert Deadline.after(60).within(0).remaining() == 0


def test_a_server_that_never_answers_costs_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(NetError, match=r"no answer in 0\.05 s"):
        fetch(f"http://127.0.0.1:{silent.getsockname()[1]}/", timeout=0.05)


@pytest.mark.parametrize("raw", [b"", b"nonsense\r\n\r\n", b"HTTP/1.0 200 OK\r\nContent-Length: 9\r\n\r\nhalf"])
def test_a_broken_answer_is_an_error(raw: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(raw)

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            with pytest.raises(NetError, match=f"{server.getsockname()[1]}/x: ."):
                fetch(f"http://127.0.0.1:{server.getsockname()[1]}/x", timeout=30)
        finally:
            thread.join()
