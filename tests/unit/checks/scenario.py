"""A deployment for the checks to look at: recorded discovery and metrics, a plan that fits, a server in their place."""

from __future__ import annotations

import base64
import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

DATA = Path(__file__).parent / "data"
BLOCK = 16
KV_MODE = ("--router-mode", "kv")
Rank = tuple[int, int]  # Dynamo worker id, DP rank
# Dynamo's ids in the recordings
AGG0, AGG1, AGG2 = 1641177412351251210, 1641177412351251214, 1641177412351251216
PREFILL0, DECODE0 = 7838693449568656908, 7838693449568656906


def recorded(name: str) -> dict[str, Any]:
    """Key -> JSON value of a recorded discovery dump, with the file backend's percent-encoding removed."""
    values = json.loads((DATA / name).read_text())
    return {unquote(key): value for key, value in values.items()}


def as_text(entries: dict[str, Any]) -> dict[str, str]:
    return {key: json.dumps(value) for key, value in entries.items()}


def worker(name: str, role: str, nodes: list[int], system_ports: list[int], publishers: list[list[int]]) -> Any:
    """A worker of the plan: per node a process, its sidecar's status port, and the DP ranks that publish there."""
    return {
        "name": name,
        "role": role,
        "engine": "sglang",
        "nodes": nodes,
        "dp_size": 2,
        "processes": [
            {
                "name": f"{name}.{rank}",
                "node": node,
                "node_rank": rank,
                "serves": [] if rank else [0, 1],
                "argv": ["python3", "-m", "sglang.launch_server", "--enable-dp-attention"],
                "env": {"CUDA_VISIBLE_DEVICES": "0"},
                "ready_port": None,
                "sidecar": {
                    "mode": "serving" if rank == 0 else "telemetry",
                    "argv": [],
                    "env": {"DYN_SYSTEM_HOST": f"${{NODE_ADDR[{node}]}}", "DYN_SYSTEM_PORT": str(system_ports[rank])},
                },
                "publishers": [{"dp_rank": dp_rank, "port": 5200 + dp_rank} for dp_rank in publishers[rank]],
            }
            for rank, node in enumerate(nodes)
        ],
    }


def plan_of(workers: list[Any], kv_workers: list[Any]) -> Any:
    def targets(of: list[Any]) -> list[Any]:
        return [{"worker": item["name"], "dp_rank": rank} for item in of for rank in range(item["dp_size"])]

    return {
        "version": 1,
        "model": {"path": "/models/tiny", "served_name": "tiny"},
        "workers": workers,
        "services": [],
        "claims": [],
        "frontends": [{"name": "frontend-0", "node": 2, "argv": ["python3", "-m", "dynamo.frontend", *KV_MODE]}],
        "endpoint": {"node": 2, "port": 8000},
        "checks": [
            {"name": "registration", "on_failure": "fail", "targets": targets(workers)},
            {"name": "rank_routing", "on_failure": "fail", "targets": targets(workers)},
            {"name": "kv_events", "on_failure": "fail", "targets": targets(kv_workers)},
        ],
    }


def agg_plan() -> Any:
    """The plan of agg-etcd.json: one worker over two nodes, two workers on one node."""
    workers = [
        worker("agg-0", "agg", [0, 1], [21149, 21150], [[0], [1]]),
        worker("agg-1", "agg", [1], [21156], [[0, 1]]),
        worker("agg-2", "agg", [1], [21162], [[0, 1]]),
    ]
    return plan_of(workers, workers)


def pd_plan() -> Any:
    """The plan of pd-etcd.json."""
    workers = [
        worker("prefill-0", "prefill", [0], [21193], [[0, 1]]),
        worker("decode-0", "decode", [1], [21195], [[]]),
    ]
    return plan_of(workers, workers[:1])


@dataclass
class Scenario:
    """What is registered, and how the deployment misbehaves. `lost` counts the events that each rank still loses.

    `entry` is the port that clients use, where it is not the frontend's own.
    """

    plan: Any
    entries: dict[str, Any]
    metrics: str
    lost: dict[Rank, float] = field(default_factory=dict)
    moved: dict[Rank, Rank] = field(default_factory=dict)
    errors: dict[Rank, tuple[int, str]] = field(default_factory=dict)
    mute: set[Rank] = field(default_factory=set)
    unpinned_to: Rank | None = None
    hit_rates: bool = True
    anonymous: bool = False
    metrics_status: int = 200
    models: tuple[str, ...] | None = ("tiny",)
    looks_until_complete: int = 0
    port: int = 0
    entry: int = 0
    requests: list[Any] = field(default_factory=list)
    known: dict[Rank, set[str]] = field(default_factory=lambda: defaultdict(set))
    cached: dict[Rank, set[str]] = field(default_factory=lambda: defaultdict(set))
    lock: threading.Lock = field(default_factory=threading.Lock)
    forgetful: set[Rank] = field(default_factory=set)
    route_log: Path | None = None
    phases: dict[str, str] = field(default_factory=lambda: {"Prefill": "completed", "Decode": "completed"})
    logged_as: dict[Rank, Rank] = field(default_factory=dict)

    def range(self, body: Any) -> Any:
        """etcd's JSON gateway: keys in [key, range_end)."""
        first, last = (base64.b64decode(body[name]).decode() for name in ("key", "range_end"))
        self.looks_until_complete -= 1
        hidden = "/event_sources/" if self.looks_until_complete > 0 else None
        found = [
            {"key": base64.b64encode(key.encode()).decode(), "value": base64.b64encode(text.encode()).decode()}
            for key, text in sorted(as_text(self.entries).items())
            if first <= key < last and not (hidden and hidden in key)
        ]
        return {"header": {"revision": "7"}, "count": str(len(found)), **({"kvs": found} if found else {})}

    def chat(self, body: Any) -> tuple[int, Any]:
        """The frontend: routes by pin, else to a rank that is known to have the prompt."""
        with self.lock:
            self.requests.append(body)
            text, extension = body["messages"][0]["content"], body["nvext"]
            if body["model"] != "tiny":
                return 404, {"message": "Model not found", "type": "Not Found", "code": 404}
            if "prefill_worker_id" in extension:
                prefill = extension["prefill_worker_id"], extension["prefill_dp_rank"]
                decode = extension["decode_worker_id"], extension["dp_rank"]
            else:
                prefill = self._one_worker(text, extension)
                decode = (DECODE0, 0) if prefill[0] == PREFILL0 else prefill
            for rank in (prefill, decode):
                if rank in self.errors:
                    status, message = self.errors[rank]
                    return status, {"message": message, "type": "error", "code": status}
            prefill = self.moved.get(prefill, prefill)
            decode = self.moved.get(decode, decode)
            return 200, self._answer(text, prefill, decode)

    def _one_worker(self, text: str, extension: Any) -> Rank:
        if "backend_instance_id" in extension:
            return extension["backend_instance_id"], extension["dp_rank"]
        holders = [rank for rank, texts in self.known.items() if text in texts]
        return self.unpinned_to or (holders[0] if holders else (AGG0, 0))

    def _answer(self, text: str, prefill: Rank, decode: Rank) -> Any:
        blocks = len(text) // BLOCK
        hit_rate = blocks / (blocks + 1) if text in self.known[prefill] else 0.0
        cached = blocks * BLOCK if text in self.cached[prefill] else 0
        if not cached:
            self.cached[prefill].add(text)
            if self.lost.get(prefill, 0) > 0:
                self.lost[prefill] -= 1
            else:
                self.known[prefill].add(text)
        tokens = 0 if decode in self.mute else 2
        if prefill in self.forgetful:
            cached = 0
        request_id = f"request-{len(self.requests)}"
        if self.route_log and prefill != decode:
            self._log(request_id, {"Prefill": prefill, "Decode": decode})
        return {
            "id": f"chatcmpl-{request_id}",
            "choices": [{"index": 0, "message": {"content": "r1", "role": "assistant"}, "finish_reason": "length"}],
            "usage": {
                "prompt_tokens": len(text) + 3,
                "completion_tokens": tokens,
                "prompt_tokens_details": {"cached_tokens": cached},
            },
            "nvext": {
                "worker_id": {}
                if self.anonymous
                else {
                    "prefill_worker_id": prefill[0],
                    "prefill_dp_rank": prefill[1],
                    "decode_worker_id": decode[0],
                    "decode_dp_rank": decode[1],
                },
                "timing": {"ttft_ms": 1.0, **({"kv_hit_rate": hit_rate} if self.hit_rates else {})},
            },
        }

    def _log(self, request_id: str, legs: dict[str, Rank]) -> None:
        """As Dynamo 1.6.1's frontend logs a routed request."""
        assert self.route_log is not None
        with self.route_log.open("a") as file:
            for phase, how in self.phases.items():
                worker_id, dp_rank = self.logged_as.get(legs[phase], legs[phase])
                outcome = "cancelled" if how == "cancelled" else "success" if how == "completed" else how
                file.write(
                    f'INFO http-request:kv_router.route_request: request_span: route request {how} request.outcome="{outcome}" '
                    f'method=POST request_id=0f6 model="tiny" otel.kind="client" request_id={request_id} dp_rank={dp_rank} '
                    f'overlap_blocks=0 phase={phase} worker_id={worker_id} request.attempt=0 request.outcome="{outcome}"\n'
                )

    def add_check(self, name: str, targets: list[Any], **settings: int) -> None:
        """Plan one more check, after the others."""
        check = {"name": name, "on_failure": "fail", "targets": targets, "timeout": None, "settings": settings}
        self.plan["checks"].append(check)

    def write(self, folder: Path) -> list[str]:
        """The plan and the node table in `folder`; returns the command line of the checks."""
        plan, nodes, out = folder / "plan.json", folder / "nodes.tsv", folder / "checks.json"
        frontend = self.plan["frontends"][0]
        frontend.update(port=self.port, env={"ETCD_ENDPOINTS": f"http://${{NODE_ADDR[2]}}:{self.port}"})
        self.plan["endpoint"]["port"] = self.entry or self.port
        plan.write_text(json.dumps(self.plan))
        nodes.write_text("0\tnode-a\t10.88.0.1\n1\tnode-b\t10.88.0.2\n2\tnode-c\t127.0.0.1\n")
        return ["--plan", str(plan), "--nodes", str(nodes), "--out", str(out)]


def agg() -> Scenario:
    return Scenario(agg_plan(), recorded("agg-etcd.json"), (DATA / "agg-metrics.txt").read_text())


def disaggregated() -> Scenario:
    return Scenario(pd_plan(), recorded("pd-etcd.json"), (DATA / "pd-metrics.txt").read_text())


class _Handler(BaseHTTPRequestHandler):
    """Answers every request with what `answer` says to its path and body."""

    answer: Callable[[str, bytes], tuple[int, str]]

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, text = type(self).answer(self.path, body)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@contextmanager
def serving(answer: Callable[[str, bytes], tuple[int, str]]) -> Iterator[int]:
    """An HTTP server on a loopback port."""
    handler = type("Handler", (_Handler,), {"answer": staticmethod(answer)})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def answering(status: int, text: str) -> Iterator[str]:
    """The URL of a server that answers every request alike."""
    with serving(lambda _path, _body: (status, text)) as port:
        yield f"http://127.0.0.1:{port}"


@contextmanager
def running(scenario: Scenario) -> Iterator[Scenario]:
    """The scenario as etcd and frontend on one loopback port."""

    def answer(path: str, body: bytes) -> tuple[int, str]:
        if path == "/metrics":
            return scenario.metrics_status, scenario.metrics
        if path == "/v1/models" and scenario.models is not None:
            return 200, json.dumps({"object": "list", "data": [{"id": model} for model in scenario.models]})
        if path == "/v1/models":
            return 503, ""
        if path == "/v3/kv/range":
            return 200, json.dumps(scenario.range(json.loads(body)))
        status, content = scenario.chat(json.loads(body))
        return status, json.dumps(content)

    with serving(answer) as scenario.port:
        yield scenario
