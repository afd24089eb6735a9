"""The prefill engine's bootstrap server, and the decode engine's way to it.

`/health` and `/route` (the prefill engine's sizes) are SGLang's own. What its transfer backends do between the engines
by RDMA, after a handshake through this server, is one path here: `/take`, which hands over a room's content once.
"""

from __future__ import annotations

import http.client
import http.server
import json
import threading
import time
from collections.abc import Callable
from typing import Any

from srtctl.sim.address import Address
from srtctl.sim.errors import AbortedError, TransferError
from srtctl.sim.http_server import bind
from srtctl.sim.sglang.config import Config
from srtctl.sim.sglang.rooms import Offer, Refusal, Rooms

ROUTE = "/route?prefill_dp_rank=-1&prefill_cp_rank=-1&target_tp_rank=-1&target_pp_rank=-1"
CALL_SECONDS = 5.0
WAIT_SECONDS = 0.5  # one question for a room; in between the decode engine looks whether the request was aborted
RETRY_SECONDS = 0.2


class BootstrapServer:
    """The listening server: `--host`:`--disaggregation-bootstrap-port`, one thread a request."""

    def __init__(self, config: Config, rooms: Rooms, registered: Callable[[], bool]) -> None:
        """Bind and serve; `/route` answers 503 until all ranks are `registered`.

        Raises OSError, naming the address, when it cannot be bound.
        """
        self._server = bind(config.host, config.bootstrap_port, _handler(_sizes(config), rooms, registered))
        serve = {"poll_interval": 0.05}
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs=serve, name="bootstrap", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop at once."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def take(address: Address, room: int, config: Config, seconds: float, stop: threading.Event) -> int:
    """Wait until the KV cache in `room` at `address` is there, and take it; returns the prefill DP rank it lay on.

    Raises TransferError when the prefill leg failed, when the engines do not fit together, or when after `seconds`
    there is still nothing; AbortedError when `stop` is set.
    """
    deadline = time.monotonic() + seconds
    while True:
        if stop.is_set():
            raise AbortedError
        left = max(deadline - time.monotonic(), 0)
        try:
            _check(_call(address, "GET", ROUTE), config)
            answer = _call(address, "POST", "/take", {"room": room, "wait": min(left, WAIT_SECONDS)})
        except (OSError, http.client.HTTPException, ValueError) as error:
            answer = {"waiting": f"could not ask the bootstrap server: {error}"}
            stop.wait(min(left, RETRY_SECONDS))
        if "dp_rank" in answer:
            return int(answer["dp_rank"])
        if "refused" in answer:
            raise TransferError(f"the prefill engine says: {answer['refused']}")
        if not left:
            raise TransferError(f"timed out after {seconds:g}s: {answer['waiting']}")


def _call(address: Address, method: str, path: str, body: object = None) -> dict[str, Any]:
    connection = http.client.HTTPConnection(address.host, address.port, timeout=CALL_SECONDS)
    try:
        connection.request(method, path, None if body is None else json.dumps(body))
        response = connection.getresponse()
        text = response.read().decode(errors="replace")
    finally:
        connection.close()
    if response.status != 200:
        raise ValueError(f"HTTP {response.status} {text}")
    answer = json.loads(text)
    if not isinstance(answer, dict):
        raise ValueError(f"not a JSON object: {text[:80]}")
    return answer


def _check(prefill: dict[str, Any], config: Config) -> None:
    # SGLang's decode engine even ends over this
    theirs, ours = prefill.get("page_size"), config.page_size
    if theirs != ours:
        raise TransferError(
            f"Page size mismatch: prefill server has page_size={theirs}, but decode server has page_size={ours}. "
            "Both servers must use the same --page-size value."
        )


def _sizes(config: Config) -> dict[str, object]:
    topology = config.topology
    return {
        "attn_tp_size": topology.tp // topology.dp if topology.dp_attention else topology.tp,
        "attn_cp_size": 1,
        "dp_size": topology.dp,
        "pp_size": topology.pp,
        "page_size": config.page_size,
        "follow_bootstrap_room": config.follow_bootstrap_room,
    }


def _handler(
    sizes: dict[str, object], rooms: Rooms, registered: Callable[[], bool]
) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/health":
                self._answer(200, "OK")
            elif path != "/route":
                self._answer(404, "404: Not Found")
            elif not registered():
                self._answer(503, "Prefill server not fully registered yet.")
            else:
                self._answer(200, json.dumps(sizes))

        def do_POST(self) -> None:
            if self.path != "/take":
                self._answer(404, "404: Not Found")
                return
            try:
                question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                room, wait = int(question["room"]), float(question["wait"])
            except (KeyError, TypeError, ValueError):
                self._answer(400, "Missing inputs for bootstrap server.")
                return
            self._answer(200, json.dumps(_content(rooms.take(room, wait))))

        def _answer(self, status: int, body: str) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            """The engines log what matters."""

    return Handler


def _content(found: Offer | Refusal | None) -> dict[str, object]:
    if found is None:
        return {"waiting": "the prefill engine has not offered this room"}
    return {"dp_rank": found.dp_rank} if isinstance(found, Offer) else {"refused": found.reason}
