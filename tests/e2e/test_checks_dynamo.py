"""The post-launch checks against the real Dynamo: etcd, frontend with the KV router, sidecars, simulated SGLang.

One engine over two nodes (a leader and a follower, one attention-DP rank each), started from the plan that the checks
read. Needs root, etcd, and the sandbox's stack environment. Everything runs in a network
namespace of its own, where two loopback addresses are the two nodes, and where the plan's ports are free.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import sim_stack

pytestmark = pytest.mark.e2e

NODES = ("10.88.0.1", "10.88.0.2")
CHECKS = ("registration", "rank_routing", "publishers", "kv_events", "cache_reuse")  # all but those that need Slurm
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))

if os.geteuid() != 0 or not shutil.which("etcd"):
    pytest.skip("needs root for a network namespace, and etcd", allow_module_level=True)


@pytest.fixture(scope="module", autouse=True)
def two_nodes() -> Iterator[None]:
    """A network namespace in which two loopback addresses are the two nodes."""
    with sim_stack.private_network(*NODES):
        yield


def make_plan(image: Path, discovery: dict[str, str]) -> Any:
    """TP2, attention DP2 over two one-GPU nodes: what `srtctl plan` says of it, as far as the checks read it."""
    events = json.dumps({"publisher": "zmq", "topic": "kv-events", "endpoint": "tcp://*:5200"})
    processes = []
    for node in (0, 1):
        engine = shlex.split(
            f"""python3 -m sglang.launch_server --model-path {image}/model --served-model-name tiny --host 0.0.0.0
            --port {6100 + node} --grpc-port {9100 + node} --nccl-port {17500 + node} --page-size 16 --tp-size 2
            --dp-size 2 --enable-dp-attention --nnodes 2 --node-rank {node} --dist-init-addr ${{NODE_ADDR[0]}}:8300
            --incremental-streaming-output --kv-events-config"""
        )
        hosts = ("DYN_SYSTEM_HOST", "DYN_TCP_RPC_HOST", "DYN_EVENT_PLANE_HOST")
        sidecar = {
            "mode": ("serving", "telemetry")[node],
            "argv": shlex.split(f"python3 -m dynamo.sglang.sidecar --grpc-endpoint 127.0.0.1:{9100 + node}"),
            "env": {
                **discovery,
                **dict.fromkeys(hosts, f"${{NODE_ADDR[{node}]}}"),
                "DYN_SYSTEM_PORT": str(7500 + node),
            },
        }
        processes.append(
            {
                "name": f"agg-0.{node}",
                "node": node,
                "node_rank": node,
                "serves": [] if node else [0, 1],
                "argv": [*engine, events],
                "env": {},
                "ready_port": 9100 + node,
                "sidecar": sidecar,
                "publishers": [{"dp_rank": node, "port": 5200 + node}],
            }
        )
    targets = [{"worker": "agg-0", "dp_rank": rank} for rank in (0, 1)]
    etcd = shlex.split(
        """etcd --listen-client-urls http://${NODE_ADDR[0]}:2379 --advertise-client-urls http://${NODE_ADDR[0]}:2379
        --listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380
        --initial-cluster default=http://127.0.0.1:2380"""
    )
    return {
        "version": 1,
        "model": {"path": f"{image}/model", "served_name": "tiny"},
        "workers": [
            {"name": "agg-0", "role": "agg", "engine": "sglang", "dp_size": 2, "nodes": [0, 1], "processes": processes}
        ],
        "claims": [
            {"node": node, "first": 9100 + node, "count": 1, "purpose": "grpc", "owner": f"agg-0.{node}"}
            for node in (0, 1)
        ],
        "services": [{"name": "etcd", "node": 0, "argv": etcd, "env": {}, "port": 2379}],
        "frontends": [
            {
                "name": "frontend-0",
                "node": 0,
                "port": 8000,
                "argv": shlex.split("python3 -m dynamo.frontend --http-port 8000 --router-mode kv"),
                "env": {**discovery, "DYN_TCP_RESPONSE_STREAM_HOST": "${NODE_ADDR[0]}"},
            }
        ],
        "endpoint": {"node": 0, "port": 8000},
        "checks": [{"name": name, "on_failure": "fail", "targets": targets} for name in CHECKS],
    }


class Job:
    """The processes of a plan, with their logs in `folder`."""

    def __init__(self, folder: Path, image: Path, plan: Any, fault: str) -> None:
        self.folder, self.plan, self.fault = folder, plan, fault
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("DYN_", "SRTCTL_SIM_", "PYTHON", "ETCD_"))}
        self.environment = {
            **kept,
            "PATH": f"{sim_stack.PYTHON.parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(image),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": str(self.folder),  # Dynamo leaves a file there a process
            "DYN_SDK_DISABLE_ANSI_LOGGING": "1",
            "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": "0",
            "HF_HUB_OFFLINE": "1",
        }

    def start(self) -> None:
        """Start everything, and wait until the frontend lists the model, as a job's gate does."""
        (self.folder / "plan.json").write_text(json.dumps(self.plan))
        (self.folder / "nodes.tsv").write_text("".join(f"{i}\tnode-{i}\t{a}\n" for i, a in enumerate(NODES)))
        for service in self.plan["services"]:
            self._spawn(service["name"], service["argv"], service["env"])
        self.until("etcd answers", lambda: get(f"http://{NODES[0]}:2379/health"))
        for frontend in self.plan["frontends"]:
            self._spawn(frontend["name"], frontend["argv"], {**frontend["env"], "DYN_SYSTEM_PORT": "-1"})
        for worker in self.plan["workers"]:
            for process in worker["processes"]:
                engine, sidecar = process["argv"], process["sidecar"]
                self._spawn(f"{process['name']}.engine", engine, {**process["env"], "SRTCTL_SIM_FAULT": self.fault})
                self._spawn(f"{process['name']}.sidecar", sidecar["argv"], sidecar["env"])
        self.until("the model is listed", lambda: json.loads(get(f"http://{NODES[0]}:8000/v1/models"))["data"])

    def check(self) -> tuple[int, Any]:
        """Run the checks once; returns their exit code and checks.json."""
        out = self.folder / "checks.json"
        out.unlink(missing_ok=True)
        files = shlex.split("--plan plan.json --nodes nodes.tsv --out checks.json")
        command = [shutil.which("python3", path=self.environment["PATH"]) or "python3", "-m", "srtctl.checks", *files]
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.stdout == ""
        assert out.exists(), done.stderr
        return done.returncode, json.loads(out.read_text())

    def until(self, what: str, condition: Callable[[], object], seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, ValueError):
                if condition():
                    return
            time.sleep(0.1)
        logs = {path.name: path.read_text(errors="replace")[-500:] for path in sorted(self.folder.glob("*.log"))}
        raise AssertionError(f"{what}: not within {seconds:g} s; {logs}")

    def stop(self) -> None:
        for process in reversed(self.processes.values()):
            process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _spawn(self, name: str, argv: list[str], env: dict[str, str]) -> None:
        words, values = [bound(word) for word in argv], {key: bound(value) for key, value in env.items()}
        executable = shutil.which(words[0], path=self.environment["PATH"]) or words[0]
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [executable, *words[1:]],
                env={**self.environment, **values},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )


def bound(text: str) -> str:
    for index, address in enumerate(NODES):
        text = text.replace(f"${{NODE_ADDR[{index}]}}", address)
    return text


def get(url: str) -> str:
    with OPENER.open(url, timeout=10) as answer:
        return str(answer.read().decode())


@contextlib.contextmanager
def running(folder: Path, image: Path, discovery: str = "etcd", fault: str = "") -> Iterator[Job]:
    settings = {
        "etcd": {"DYN_DISCOVERY_BACKEND": "etcd", "ETCD_ENDPOINTS": "http://${NODE_ADDR[0]}:2379"},
        "file": {"DYN_DISCOVERY_BACKEND": "file", "DYN_FILE_KV": str(folder / "discovery")},
    }
    plan = make_plan(image, settings[discovery])
    for check in plan["checks"] if fault else ():
        check["timeout"] = 4.0  # a fault shows at once
    job = Job(folder, image, plan, fault)
    try:
        job.start()
        yield job
    finally:
        job.stop()


def verdicts(result: Any) -> dict[str, list[str]]:
    """Check -> its own verdict, then those of rank 0 and rank 1."""
    return {
        check["name"]: [check["verdict"], *(target["verdict"] for target in check["targets"])]
        for check in result["checks"]
    }


PASS, SKIP = ["pass"] * 3, ["skip"] * 3


@pytest.mark.parametrize("discovery", ["etcd", "file"])
def test_a_healthy_deployment_passes_every_time(discovery: str, tmp_path: Path, image: Path) -> None:
    with running(tmp_path, image, discovery) as job:
        for _ in range(3):
            code, result = job.check()
            assert (code, verdicts(result)) == (0, dict.fromkeys(CHECKS, PASS))


ONE, ONE_LEFT = ["fail", "pass", "fail"], ["skip", "pass", "skip"]
FAULTS = {
    "silent_kv=1": (
        {"publishers": ONE_LEFT, "kv_events": ONE, "cache_reuse": ONE_LEFT},
        ["agg-0 rank 1: no Stored event reached the router"],
    ),
    "error_500=1": (
        {"rank_routing": ONE, "publishers": ONE_LEFT, "kv_events": ONE_LEFT, "cache_reuse": ONE_LEFT},
        ["agg-0 rank 1: HTTP 500 from the frontend: ", "see logs/agg-0.0.engine.log"],
    ),
    "report_dp_size=1": (
        {"registration": ["fail"] * 3, **dict.fromkeys(CHECKS[1:], SKIP)},
        ["agg-0 rank 0: agg-0 registered DP ranks [0], the plan has [0, 1]"],
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_fails_the_one_check_that_names_it(fault: str, tmp_path: Path, image: Path) -> None:
    expected, words = FAULTS[fault]
    with running(tmp_path, image, fault=fault) as job:
        code, result = job.check()
    assert (code, verdicts(result)) == (3, dict.fromkeys(CHECKS, PASS) | expected)
    (reason,) = [check["reason"] for check in result["checks"] if check["verdict"] == "fail"]
    for word in words:
        assert word in reason
