"""plan.json and state/nodes.tsv, read and bound together; everything that cannot be used is an InputError."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from srtctl.checks.deployment import Deployment, EtcdDiscovery, FileDiscovery, PlannedCheck, Publisher, Worker
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
    addresses = read_nodes(nodes_path)
    try:
        return _bind(plan, addresses)
    except InputError as error:
        raise InputError(f"{plan_path}: {error}") from None
    except KeyError as error:
        raise InputError(f"{plan_path}: not a plan of version {PLAN_VERSION}: {error} is missing") from None
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise InputError(f"{plan_path}: not a plan of version {PLAN_VERSION}: {error}") from None


def read_nodes(path: Path) -> dict[int, str]:
    """Node index -> address, from lines of `index TAB name TAB address`. Raises InputError."""
    addresses: dict[int, str] = {}
    for number, line in enumerate(_read(path).splitlines(), 1):
        fields = line.split("\t")
        if len(fields) != 3 or not fields[0].isdigit() or not fields[2]:
            raise InputError(f"{path}:{number}: expected index, name and address with tabs between, found {line!r}")
        addresses[int(fields[0])] = fields[2]
    return addresses


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text: {error.reason}") from None


def _bind(plan: Mapping[str, Any], addresses: Mapping[int, str]) -> Deployment:
    if not plan["frontends"]:
        raise InputError("the plan has no frontend, so there is nothing to send requests to")
    frontend = plan["frontends"][0]
    env = {name: _resolve(value, addresses) for name, value in frontend["env"].items()}
    workers = tuple(_worker(worker, addresses) for worker in plan["workers"])
    checks = tuple(
        PlannedCheck(
            check["name"],
            check["on_failure"],
            tuple(Target(target["worker"], target["dp_rank"]) for target in check["targets"]),
            float(check["timeout"]) if check.get("timeout") is not None else None,
        )
        for check in plan["checks"]
    )
    known = {Target(worker.name, rank) for worker in workers for rank in range(worker.dp_size)}
    for check in checks:
        if check.on_failure not in ON_FAILURE:
            raise InputError(f"check {check.name}: on_failure is {check.on_failure!r}, not one of {ON_FAILURE}")
        for target in check.targets:
            if target not in known:
                raise InputError(f"check {check.name}: the plan has no {target}")
    return Deployment(
        model=plan["model"]["served_name"],
        frontend=f"http://{authority(_address(addresses, frontend['node']), frontend['port'])}",
        kv_router=_router_mode(frontend["argv"]) == "kv",
        discovery=_discovery(env),
        workers=workers,
        checks=checks,
    )


def _router_mode(argv: Sequence[str]) -> str:
    """The value of the last `--router-mode`, as the frontend reads it; its default is round-robin."""
    mode = "round-robin"
    for index, word in enumerate(argv):
        if word == "--router-mode":
            mode = argv[index + 1]
        elif word.startswith("--router-mode="):
            mode = word.partition("=")[2]
    return mode


def _worker(worker: Mapping[str, Any], addresses: Mapping[int, str]) -> Worker:
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
    return Worker(
        worker["name"], worker["role"], worker["dp_size"], worker["processes"][0]["name"], serving, publishers
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
