"""plan.json and state/nodes.tsv, read and bound together; everything that cannot be used is an InputError."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from srtctl.checks.deployment import (
    Deployment,
    EtcdDiscovery,
    FileDiscovery,
    Node,
    PlannedCheck,
    Process,
    Publisher,
    Worker,
)
from srtctl.checks.model import InputError, Target

PLAN_VERSION = 1
ROLES = ("agg", "prefill", "decode")
ON_FAILURE = ("fail", "warn")
_NODE_ADDR = re.compile(r"\$\{NODE_ADDR\[(\d+)\]\}")


def load(plan_path: Path, nodes_path: Path) -> Deployment:
    """The deployment of `plan.json` on the nodes of `state/nodes.tsv`. Raises InputError."""
    try:
        plan = json.loads(_read(plan_path))
    except ValueError as error:
        raise InputError(f"{plan_path}: not JSON: {error}") from None
    version = plan.get("version") if isinstance(plan, dict) else None
    if version != PLAN_VERSION:
        raise InputError(f"{plan_path}: plan version is {version!r}, these checks read version {PLAN_VERSION}")
    nodes = read_nodes(nodes_path)
    try:
        return _bind(plan, nodes, plan_path.parent)
    except InputError as error:
        raise InputError(f"{plan_path}: {error}") from None
    except KeyError as error:
        raise InputError(f"{plan_path}: not a plan of version {PLAN_VERSION}: {error} is missing") from None
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise InputError(f"{plan_path}: not a plan of version {PLAN_VERSION}: {error}") from None


def read_nodes(path: Path) -> dict[int, Node]:
    """Node index -> node, from lines of `index TAB name TAB address`. Raises InputError."""
    nodes: dict[int, Node] = {}
    for number, line in enumerate(_read(path).splitlines(), 1):
        fields = line.split("\t")
        if len(fields) != 3 or not fields[0].isdigit() or not fields[2]:
            raise InputError(f"{path}:{number}: expected index, name and address with tabs between, found {line!r}")
        nodes[int(fields[0])] = Node(fields[1], fields[2])
    return nodes


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text: {error.reason}") from None


def _bind(plan: Mapping[str, Any], nodes: Mapping[int, Node], run_dir: Path) -> Deployment:
    addresses = {index: node.address for index, node in nodes.items()}
    if not plan["frontends"]:
        raise InputError("the plan has no frontend, so there is nothing to send requests to")
    frontend = plan["frontends"][0]
    env = {name: _resolve(value, addresses) for name, value in frontend["env"].items()}
    workers = tuple(_worker(worker, plan["claims"], addresses) for worker in plan["workers"])
    checks = tuple(
        PlannedCheck(
            check["name"],
            check["on_failure"],
            tuple(Target(target["worker"], target["dp_rank"]) for target in check["targets"]),
            float(check["timeout"]) if check.get("timeout") is not None else None,
            {name: int(value) for name, value in (check.get("settings") or {}).items()},
        )
        for check in plan["checks"]
    )
    known = {Target(worker.name, rank) for worker in workers for rank in (None, *range(worker.dp_size))} | {Target("")}
    for check in checks:
        if check.on_failure not in ON_FAILURE:
            raise InputError(f"check {check.name}: on_failure is {check.on_failure!r}, not one of {ON_FAILURE}")
        for target in check.targets:
            if target not in known:
                raise InputError(f"check {check.name}: the plan has no {target}")
    return Deployment(
        run_dir=run_dir,
        nodes=nodes,
        claimed=_claimed(plan["claims"]),
        singles=tuple(
            Process(single["name"], single["node"], (part,), "", {part: single["port"]})
            for part, key in (("service", "services"), ("frontend", "frontends"))
            for single in plan[key]
        ),
        model=plan["model"]["served_name"],
        frontend=f"http://{authority(_address(addresses, frontend['node']), frontend['port'])}",
        kv_router=_router_mode(frontend["argv"]) == "kv",
        discovery=_discovery(env),
        workers=workers,
        checks=checks,
    )


def _claimed(claims: Sequence[Mapping[str, Any]]) -> dict[int, frozenset[int]]:
    ports: dict[int, set[int]] = {}
    for claim in claims:
        ports.setdefault(claim["node"], set()).update(range(claim["first"], claim["first"] + claim["count"]))
    return {node: frozenset(found) for node, found in ports.items()}


def _router_mode(argv: Sequence[str]) -> str:
    """As the frontend reads it; its default is round-robin."""
    return flag(argv, "--router-mode") or "round-robin"


def flag(argv: Sequence[str], name: str) -> str:
    """The value of the last `name VALUE` or `name=VALUE`; empty if there is none."""
    value = ""
    for index, word in enumerate(argv):
        if word == name:
            value = argv[index + 1]
        elif word.startswith(f"{name}="):
            value = word.partition("=")[2]
    return value


def _process(process: Mapping[str, Any], claims: Sequence[Mapping[str, Any]]) -> Process:
    """Its engine and sidecar. Nothing is known to listen where the plan has no `ready_port`."""
    purposes = ("http", "grpc", "system") if process["ready_port"] else ("system",)
    listens = {
        claim["purpose"]: claim["first"]
        for claim in claims
        if claim["owner"] == process["name"] and claim["node"] == process["node"] and claim["purpose"] in purposes
    }
    parts = ("engine", "sidecar") if process["sidecar"] else ("engine",)
    return Process(process["name"], process["node"], parts, process["env"].get("CUDA_VISIBLE_DEVICES", ""), listens)


def _topic(argv: Sequence[str]) -> str:
    """The topic of the engine's KV events; SGLang's own default is empty, which every subscriber gets."""
    text = flag(argv, "--kv-events-config")
    return str(json.loads(text).get("topic", "")) if text else ""


def _bootstrap(worker: Mapping[str, Any], addresses: Mapping[int, str]) -> str:
    leader = worker["processes"][0]
    port = flag(leader["argv"], "--disaggregation-bootstrap-port") if worker["role"] == "prefill" else ""
    return authority(_address(addresses, leader["node"]), port) if port else ""


def _worker(worker: Mapping[str, Any], claims: Sequence[Mapping[str, Any]], addresses: Mapping[int, str]) -> Worker:
    if worker["role"] not in ROLES:
        raise InputError(f"worker {worker['name']}: role is {worker['role']!r}, not one of {ROLES}")
    serving = tuple(
        _status_server(process, addresses)
        for process in worker["processes"]
        if process["sidecar"] and process["sidecar"]["mode"] == "serving"
    )
    if not serving:
        raise InputError(f"worker {worker['name']} has no serving sidecar, so it registers nowhere")
    publishers = {
        publisher["dp_rank"]: Publisher(process["name"], process["node"], publisher["port"])
        for process in worker["processes"]
        for publisher in process["publishers"]
    }
    leader = worker["processes"][0]
    return Worker(
        worker["name"],
        worker["role"],
        worker["dp_size"],
        serving,
        publishers,
        tuple(_process(process, claims) for process in worker["processes"]),
        _topic(leader["argv"]),
        _bootstrap(worker, addresses),
        "--enable-dp-attention" in leader["argv"],
    )


def _status_server(process: Mapping[str, Any], addresses: Mapping[int, str]) -> str:
    env = process["sidecar"]["env"]
    host = env.get("DYN_SYSTEM_HOST")
    port = env.get("DYN_SYSTEM_PORT", "")
    if not port.isdigit() or port == "0":
        raise InputError(f"the sidecar of {process['name']} has no fixed DYN_SYSTEM_PORT, which tells its registration")
    return authority(_resolve(host, addresses) if host else _address(addresses, process["node"]), port)


def _discovery(env: Mapping[str, str]) -> EtcdDiscovery | FileDiscovery:
    backend = env.get("DYN_DISCOVERY_BACKEND", "etcd")
    if backend == "etcd" and env.get("ETCD_ENDPOINTS"):
        return EtcdDiscovery(tuple(env["ETCD_ENDPOINTS"].split(",")))
    if backend == "file" and env.get("DYN_FILE_KV"):
        return FileDiscovery(Path(env["DYN_FILE_KV"]))
    raise InputError(
        f"discovery backend {backend!r} of the frontend cannot be read; "
        "expected etcd with ETCD_ENDPOINTS or file with DYN_FILE_KV in its environment"
    )


def _address(addresses: Mapping[int, str], node: int) -> str:
    if node not in addresses:
        raise InputError(f"node {node} of the plan is not in the node table, which has {sorted(addresses)}")
    return addresses[node]


def _resolve(text: str, addresses: Mapping[int, str]) -> str:
    return _NODE_ADDR.sub(lambda match: _address(addresses, int(match[1])), text)


def authority(host: str, port: int | str) -> str:
    """`host:port` as a URL writes it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
