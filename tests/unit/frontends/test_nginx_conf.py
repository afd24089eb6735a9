"""The generated nginx.conf in a real nginx, before two servers that say who they are."""

from __future__ import annotations

import http.client
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from srtctl.frontends import nginx
from srtctl.recipe.model import Frontend
from srtctl.sandbox.packages import find_program

NGINX = find_program("nginx")
pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(NGINX is None, reason="nginx is not installed: srtctl sandbox install"),
]

DEADLINE = 30.0
NOBODY = 65534
HEADER = "X-Dynamo-Session-ID"


@dataclass
class Upstream:
    """A frontend's stand-in; `go` lets the second half of a stream out, `drop` ends connections without an answer."""

    name: str
    server: ThreadingHTTPServer
    go: threading.Event = field(default_factory=threading.Event)
    drop: bool = False
    received: list[int] = field(default_factory=list)
    connections: set[tuple[str, int]] = field(default_factory=set)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.server_address[1]}"


@contextmanager
def upstream(name: str) -> Iterator[Upstream]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            us.connections.add(self.client_address)
            us.received.append(len(self.rfile.read(int(self.headers["Content-Length"]))))
            if us.drop:
                self.close_connection = True
                return
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self._chunk(name)
            if self.path == "/stream":
                assert us.go.wait(DEADLINE)
                self._chunk("the rest")
            self._chunk("")

        def _chunk(self, text: str) -> None:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(text), text.encode()))
            self.wfile.flush()

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    class Server(ThreadingHTTPServer):
        request_queue_size = 64

    with Server(("127.0.0.1", 0), Handler) as server:
        us = Upstream(name, server)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield us
        finally:
            us.go.set()
            server.shutdown()
            thread.join()


@dataclass(frozen=True)
class Proxy:
    """A running nginx before two upstreams."""

    port: int
    upstreams: tuple[Upstream, Upstream]
    log: Path

    def post(self, session: str = "", body: bytes = b"{}", path: str = "/v1/chat/completions") -> tuple[int, str]:
        headers = {HEADER: session} if session else {}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        try:
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()


@contextmanager
def running(*, ports: Mapping[int, str] | None = None, **settings: object) -> Iterator[Proxy]:
    """nginx as an ordinary user with a folder of its own, which it may not leave anything outside of.

    `ports` puts addresses in the place of upstreams, by their number.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    scratch = Path(tempfile.mkdtemp(prefix="srtctl-nginx-"))
    try:
        with upstream("frontend-0") as first, upstream("frontend-1") as second:
            servers = [(u.name, (ports or {}).get(i, u.address)) for i, u in enumerate((first, second))]
            command = nginx(Frontend.model_validate(settings), port, servers)
            conf, log, prefix = scratch / "nginx.conf", scratch / "log", scratch / "prefix"
            conf.write_text(command.files["nginx.conf"])
            prefix.mkdir()
            user = {"user": NOBODY, "group": NOBODY, "extra_groups": ()} if os.geteuid() == 0 else {}
            for path in (scratch, prefix) if user else ():
                os.chown(path, NOBODY, NOBODY)
            places = {"${SCRATCH}": str(prefix), "${RUN_DIR}/state/files/nginx.conf": str(conf)}
            argv = [places.get(word, word) for word in command.argv[1:]]
            assert NGINX is not None
            with log.open("ab") as out:  # as node.sh opens it: nginx opens it again for its access log
                os.fchmod(out.fileno(), 0o666)
                process = subprocess.Popen([NGINX, *argv], stdin=subprocess.DEVNULL, stdout=out, stderr=out, **user)  # type: ignore[call-overload]
            try:
                _await(port, process, log)
                yield Proxy(port, (first, second), log)
            finally:
                process.terminate()
                process.wait(DEADLINE)
    finally:
        shutil.rmtree(scratch)


def _await(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + DEADLINE
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, "nginx does not listen"
            time.sleep(0.02)


def test_a_session_stays_with_its_frontend_and_the_rest_is_spread() -> None:
    with running(nginx_session_affinity=True) as proxy:
        homes = {f"session-{i}": proxy.post(f"session-{i}") for i in range(20)}
        assert set(homes.values()) == {(200, "frontend-0"), (200, "frontend-1")}
        for _ in range(3):
            assert {session: proxy.post(session) for session in homes} == homes
        assert {proxy.post() for _ in range(40)} == set(homes.values())


def test_without_affinity_a_header_means_nothing() -> None:
    with running() as proxy:
        assert Counter(proxy.post("the-same") for _ in range(20)) == {(200, f"frontend-{i}"): 10 for i in (0, 1)}


def test_another_header_can_name_the_session() -> None:
    with running(nginx_session_affinity=True, nginx_session_affinity_header="X-Correlation-ID") as proxy:
        assert len({proxy.post("the-same") for _ in range(40)}) == 2


def test_a_chunk_reaches_the_client_before_the_next_is_there() -> None:
    with running() as proxy:
        connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=DEADLINE)
        try:
            connection.request("POST", "/stream", b"{}")
            answer = connection.getresponse()
            assert answer.read1(100).startswith(b"frontend-")
            for one in proxy.upstreams:
                one.go.set()
            assert answer.read() == b"the rest"
        finally:
            connection.close()


def test_a_large_prompt_passes() -> None:
    with running() as proxy:
        assert proxy.post(body=b"x" * 30_000_000)[0] == 200
        assert [n for u in proxy.upstreams for n in u.received] == [30_000_000]


def test_connections_to_a_frontend_are_kept() -> None:
    with running() as proxy:
        for _ in range(20):
            proxy.post()
        # Each worker process of nginx keeps its own.
        assert sum(len(u.connections) for u in proxy.upstreams) <= 2 * (os.cpu_count() or 1)


def test_a_request_goes_elsewhere_only_if_nobody_got_it() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound, never listening: refused
        dead = f"127.0.0.1:{nobody.getsockname()[1]}"
        with running(ports={1: dead}) as proxy:
            assert {proxy.post() for _ in range(6)} == {(200, "frontend-0")}
    with running() as proxy:
        for one in proxy.upstreams:
            one.drop = True
        assert proxy.post()[0] == 502
        assert sum(len(u.received) for u in proxy.upstreams) == 1


def test_the_log_says_who_had_which_session() -> None:
    with running(nginx_session_affinity=True) as proxy:
        lines = {f"{proxy.post('abc')[1]} session=abc\n", f"{proxy.post()[1]} session=-\n"}
        end = time.monotonic() + DEADLINE
        while missing := [line for line in lines if line not in proxy.log.read_text()]:
            assert time.monotonic() < end, f"not logged: {missing}"
            time.sleep(0.05)
