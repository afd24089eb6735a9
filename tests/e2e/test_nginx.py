"""Two real Dynamo frontends behind a real nginx: sessions stay, and tokens pass one by one."""

from __future__ import annotations

import http.client
import json
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from srtctl.checks.frontend import requests_started
from srtctl.checks.net import NetError, fetch
from tests.e2e.conftest import Sandbox, wait_until
from tests.e2e.test_first_run import ended

pytestmark = pytest.mark.e2e

EXAMPLE = "examples/agg/sglang-frontends-2n.yaml"
MODEL = "Qwen/Qwen3-0.6B"
FRONTENDS = ("frontend-0", "frontend-1")
HEADER = "X-Dynamo-Session-ID"


class Run:
    """A serving run: nginx as a client sees it, and each frontend by itself."""

    def __init__(self, sandbox: Sandbox, *options: str) -> None:
        self.sandbox = sandbox
        self.status = sandbox.apply(EXAMPLE, *options)
        self.name: str = self.status["run"]
        self.folder = sandbox.run_dir(self.name)
        self.plan = json.loads((self.folder / "plan.json").read_text())
        table = [line.split("\t") for line in (self.folder / "state/nodes.tsv").read_text().splitlines()]
        self.addresses = {int(index): address for index, _, address in table}

    @property
    def endpoint(self) -> str:
        (url,) = self.status["endpoints"]
        return str(url)

    def url(self, frontend: str) -> str:
        place = next(f for f in self.plan["frontends"] if f["name"] == frontend)
        return f"http://{self.addresses[place['node']]}:{place['port']}"

    def counts(self) -> dict[str, int]:
        return {name: requests_started(self.url(name), timeout=10) for name in FRONTENDS}

    @contextmanager
    def asked(self, text: str, session: str = "", **fields: Any) -> Iterator[http.client.HTTPResponse]:
        """The answer of nginx to a chat request, not read yet."""
        body = {"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": 2, **fields}
        headers = {"Content-Type": "application/json"} | ({HEADER: session} if session else {})
        where = urlsplit(self.endpoint)
        connection = http.client.HTTPConnection(str(where.hostname), where.port, timeout=60)
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            yield answer
        finally:
            connection.close()

    def served_by(self, session: str, times: int) -> dict[str, int]:
        """Which frontends had so many requests of a session, by their own count."""
        before = self.counts()
        for number in range(times):
            with self.asked(f"{session} {number}", session) as answer:
                answer.read()
        return {name: count - before[name] for name, count in self.counts().items() if count > before[name]}

    def inflight(self, frontend: str) -> int:
        metrics = fetch(f"{self.url(frontend)}/metrics", timeout=10).body
        found = re.findall(r"^dynamo_frontend_inflight_requests\{.*\} (\d+)$", metrics, re.MULTILINE)
        return sum(map(int, found))


def test_sessions_stay_and_tokens_pass_one_by_one(sandbox: Sandbox) -> None:
    run = Run(sandbox)
    try:
        checks = {c["name"]: c for c in json.loads((run.folder / "checks.json").read_text())["checks"]}
        had = checks["load"]["targets"][0]["evidence"]["requests_by_frontend"]
        assert all(had[name] for name in FRONTENDS)
        for target in checks["kv_events"]["targets"]:
            assert set(target["evidence"]["hit_rate_repeated"]) == set(FRONTENDS)

        homes = {}
        for number in range(12):
            served = run.served_by(f"session-{number}", times=3)
            assert list(served.values()) == [3], f"session-{number} was served by {served}"
            homes[f"session-{number}"] = next(iter(served))
        assert set(homes.values()) == set(FRONTENDS)
        for session, home in homes.items():
            assert run.served_by(session, times=1) == {home: 1}

        _streams(run, "session-0", homes["session-0"])

        status = sandbox.cli("status", run.name).stdout
        assert "nginx: listening" in status
        assert run.endpoint in status
        assert "session=session-0" in wait_until(
            "nginx's log", lambda: (log := sandbox.cli("logs", run.name, "nginx").stdout).count("session=s") and log
        )
        _drains(run)
    finally:
        sandbox.cli("cancel", run.name, "--wait")
    assert ended(sandbox, run.name)["state"] == "cancelled"


def _streams(run: Run, session: str, home: str) -> None:
    """The first chunk is here while the frontend still works on the rest; what a client leaves ends at the frontend."""
    with run.asked("a long answer", session, stream=True, max_tokens=30_000, ignore_eos=True) as answer:
        first = answer.read1(65536)
        assert first.startswith(b"data: ")
        assert b"[DONE]" not in first
        assert run.inflight(home) == 1
        assert answer.read1(65536).startswith(b"data: ")
    wait_until("the frontend noticed that the client left", lambda: run.inflight(home) == 0, 30)


def _drains(run: Run) -> None:
    """Who was let in before the run is cancelled gets every token; who comes after that gets none."""
    tokens = 2000
    with run.asked("a last answer", stream=True, max_tokens=tokens, ignore_eos=True) as answer:
        text = answer.read1(65536)
        run.sandbox.cli("cancel", run.name)
        wait_until("new work is refused", lambda: _refused(run), 10)
        text += answer.read()
    assert text.endswith(b"data: [DONE]\n\n")
    assert text.count(b'"content":"') >= tokens
    wait_until("the job's end", lambda: run.sandbox.cli.json("status", run.name)["phase"] == "ended")
    stopped = [part for part in run.sandbox.cli.json("status", run.name)["parts"] if part["stop_seconds"] is not None]
    assert {part["code"] for part in stopped if part["part"] == "engine"} == {0}


def _refused(run: Run) -> bool:
    """Whether a new request gets no answer, or none from a frontend."""
    try:
        return fetch(f"{run.endpoint}/v1/models", timeout=5).status in (502, 503)
    except NetError:
        return True


def test_nats_takes_payloads_of_the_size_that_the_recipe_says(sandbox: Sandbox) -> None:
    run = Run(sandbox, "--set", "dynamo.request_plane=nats", "--set", "infra.nats_max_payload_mb=8")
    try:
        nats = next(s for s in run.plan["services"] if s["name"] == "nats")
        with (
            socket.create_connection((run.addresses[nats["node"]], nats["port"]), timeout=10) as connection,
            connection.makefile("rb") as lines,
        ):
            word, _, facts = lines.readline().partition(b" ")
        assert (word, json.loads(facts)["max_payload"]) == (b"INFO", 8 * 1024 * 1024)
        assert run.status["verdict"] == "pass"
    finally:
        sandbox.cli("cancel", run.name, "--wait")
