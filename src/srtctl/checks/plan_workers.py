"""The workers of plan.json, bound to the addresses of this job; part of `plan_file.load`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from srtctl.checks.deployment import Process, Publisher, Worker
from srtctl.checks.model import InputError

ROLES = ("agg", "prefill", "decode")
_FEATURES = {
    "lora": frozenset({"--enable-lora", "--lora-paths"}),
    "multimodal": frozenset({"--enable-multimodal", "--limit-mm-per-prompt"}),
}
_NODE_ADDR = re.compile(r"\$\{NODE_ADDR\[(\d+)\]\}")


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
    visible, serves = process["env"].get("CUDA_VISIBLE_DEVICES", ""), tuple(process["serves"])
    return Process(process["name"], process["node"], parts, visible, listens, serves)


def _topic(argv: Sequence[str]) -> str:
    """The topic of the engine's KV events; SGLang's own default is empty, which every subscriber gets."""
    text = flag(argv, "--kv-events-config")
    return str(json.loads(text).get("topic", "")) if text else ""


def _bootstrap(worker: Mapping[str, Any], addresses: Mapping[int, str]) -> str:
    """What a prefill worker registers; over OpenEngine nothing, because each session tells it."""
    leader = worker["processes"][0]
    if "--openengine-port" in leader["argv"]:
        return ""
    port = flag(leader["argv"], "--disaggregation-bootstrap-port") if worker["role"] == "prefill" else ""
    return authority(address(addresses, leader["node"]), port) if port else ""


def read_worker(worker: Mapping[str, Any], claims: Sequence[Mapping[str, Any]], addresses: Mapping[int, str]) -> Worker:
    """A worker of the plan. Raises InputError, or what reading another shape raises (KeyError, TypeError, …)."""
    if worker["role"] not in ROLES:
        raise InputError(f"worker {worker['name']}: role is {worker['role']!r}, not one of {ROLES}")
    serving = tuple(_status_server(process, addresses) for process in worker["processes"] if _registers(process))
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
        frozenset(feature for feature, flags in _FEATURES.items() if not flags.isdisjoint(leader["argv"])),
        resolve(flag((leader["sidecar"] or {"argv": ()})["argv"], "--advertise-grpc-endpoint"), addresses),
        worker["engine"],
    )


def _registers(process: Mapping[str, Any]) -> bool:
    """By its sidecar, or by itself: then it has a status server."""
    if sidecar := process["sidecar"]:
        return bool(sidecar["mode"] == "serving")
    return bool(process["serves"]) and "DYN_SYSTEM_PORT" in process["env"]


def _status_server(process: Mapping[str, Any], addresses: Mapping[int, str]) -> str:
    env = (process["sidecar"] or process)["env"]
    host = env.get("DYN_SYSTEM_HOST")
    port = env.get("DYN_SYSTEM_PORT", "")
    if not port.isdigit() or port == "0":
        raise InputError(f"the sidecar of {process['name']} has no fixed DYN_SYSTEM_PORT, which tells its registration")
    return authority(resolve(host, addresses) if host else address(addresses, process["node"]), port)


def address(addresses: Mapping[int, str], node: int) -> str:
    """The address of a plan node. Raises InputError where the node table lacks it."""
    if node not in addresses:
        raise InputError(f"node {node} of the plan is not in the node table, which has {sorted(addresses)}")
    return addresses[node]


def resolve(text: str, addresses: Mapping[int, str]) -> str:
    """`text` with every `${NODE_ADDR[n]}` filled in. Raises InputError."""
    return _NODE_ADDR.sub(lambda match: address(addresses, int(match[1])), text)


def authority(host: str, port: int | str) -> str:
    """`host:port` as a URL writes it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
