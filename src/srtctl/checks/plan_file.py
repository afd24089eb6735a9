"""plan.json and state/nodes.tsv, read and bound together; everything that cannot be used is an InputError."""

from __future__ import annotations

import json
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
)
from srtctl.checks.model import InputError, Target
from srtctl.checks.plan_workers import address, authority, flag, read_worker, resolve

PLAN_VERSION = 1
ON_FAILURE = ("fail", "warn")


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
    frontend, endpoint = plan["frontends"][0], plan["endpoint"]
    env = {name: resolve(value, addresses) for name, value in frontend["env"].items()}
    workers = tuple(read_worker(worker, plan["claims"], addresses) for worker in plan["workers"])
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
            Process(single["name"], single["node"], (part,), "", {part: single["port"]} if single["port"] else {})
            for part, key in (("service", "services"), ("frontend", "frontends"))
            for single in plan[key]
        ),
        model=plan["model"]["served_name"],
        endpoint=_url(endpoint, addresses),
        frontends={single["name"]: _url(single, addresses) for single in plan["frontends"]},
        kv_router=_router_mode(frontend["argv"]) == "kv",
        discovery=_discovery(env),
        workers=workers,
        checks=checks,
    )


def _url(place: Mapping[str, Any], addresses: Mapping[int, str]) -> str:
    return f"http://{authority(address(addresses, place['node']), place['port'])}"


def _claimed(claims: Sequence[Mapping[str, Any]]) -> dict[int, frozenset[int]]:
    ports: dict[int, set[int]] = {}
    for claim in claims:
        ports.setdefault(claim["node"], set()).update(range(claim["first"], claim["first"] + claim["count"]))
    return {node: frozenset(found) for node, found in ports.items()}


def _router_mode(argv: Sequence[str]) -> str:
    """As the frontend reads it; its default is round-robin."""
    return flag(argv, "--router-mode") or "round-robin"


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
