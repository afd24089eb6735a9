"""The JSON Schema of plan.json: the shapes come from the dataclasses, the words from here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from srtctl.plan.model import PLAN_VERSION
from srtctl.plan.serial import adapter

_ARGV = "The command, one word an item. An address that only the job knows is written `${NODE_ADDR[<node>]}`."
_ENV = "Variables set for this process alone; addresses as in `argv`."
_NODE = "Index of the node in the allocation, from 0."

DESCRIPTIONS: Mapping[str, Mapping[str, str]] = {
    "Plan": {
        "version": "Version of this layout.",
        "name": "Name of the recipe, and of the Slurm job.",
        "source": "The recipe file it was planned from, as it was named.",
        "nodes": "How many nodes the job asks for.",
        "gpus_per_node": "GPUs of each node.",
        "model": "The model that is served.",
        "workers": "The logical engine instances, in order of role and number.",
        "services": "Infrastructure that the others need (etcd, NATS, nginx), and the extra ones of the recipe.",
        "frontends": "What takes requests and routes them to workers.",
        "endpoint": "Where clients send requests; null where nothing serves them.",
        "client": "What is run against the deployment once it serves, and ends the job; null: it serves until cancelled.",
        "claims": "Every reserved port, by node and port. A port in an `argv` or `env` lies in a claim of its node.",
        "checks": "What is verified after the launch, in the order it runs.",
        "slurm": "What the job asks Slurm for.",
        "health": "How long the job waits for readiness.",
        "environment": "Variables set for everything in the job.",
        "identity": "What the recipe says that model, container and frameworks are, for the record.",
        "files": "What commands read, by its name in the bundle's `files` folder, as text.",
        "runtime": "What the job needs to know of the nodes.",
        "warnings": "What planning warned about.",
    },
    "Model": {"path": "Folder or repository of the weights.", "served_name": "The name that clients ask for."},
    "Worker": {
        "name": "`<role>-<number>`; also the name of its Slurm step.",
        "role": "`prefill`, `decode` or `agg`.",
        "engine": "The engine's name in the recipe.",
        "nodes": "Its nodes in order of node rank; the first is the leader's.",
        "dp_size": "Data-parallel ranks of the worker.",
        "launcher": "`node`: a process a node; `task`: several, each a task of the step; `mpi`: each process once a GPU, as one "
        "MPI job whose rank 0 is the leader.",
        "processes": "Its processes, one a node, in order of node rank.",
        "image": "The container image it runs in; empty: on the node itself.",
        "srun_options": "Further options of its step, without the dashes; null is an option without a value.",
        "setup": "Commands that each of its nodes runs first, in order; each must succeed.",
    },
    "Process": {
        "name": "`<worker>.<node rank>`.",
        "node": _NODE,
        "node_rank": "Rank of the node inside the worker; 0 is the leader.",
        "gpus": "Indices of its GPUs on the node.",
        "serves": "Global data-parallel ranks whose requests come in here: that it registers, or that its server serves.",
        "argv": _ARGV,
        "env": _ENV,
        "ready_port": "The port on its node that answers when the process is up; null where nothing answers.",
        "sidecar": "The Dynamo process beside it; null where there is none.",
        "publishers": "The KV event sockets that this process binds.",
    },
    "Sidecar": {
        "mode": "`serving` on a leader, `telemetry` on a follower, which only relays its KV events.",
        "argv": _ARGV,
        "env": _ENV,
    },
    "Publisher": {
        "dp_rank": "Global data-parallel rank inside the worker.",
        "port": "The port it binds; 0: any, and the engine tells which.",
    },
    "Service": {
        "name": "Its name; also that of its Slurm step.",
        "node": _NODE,
        "argv": _ARGV,
        "env": _ENV,
        "port": "The port that answers when it is up; null where nothing is waited for.",
        "image": "The container image it runs in; empty: on the node itself.",
        "setup": "Commands that run first, in order; each must succeed.",
        "start": "`before` the workers, or `after` every worker is registered.",
    },
    "Client": {
        "name": "Its name; also that of its Slurm step.",
        "node": _NODE,
        "script": "What bash runs; addresses as in `argv`.",
        "env": _ENV,
        "image": "The container image it runs in; empty: on the node itself.",
    },
    "Endpoint": {"node": _NODE, "port": "The port of its HTTP server."},
    "Claim": {
        "node": _NODE,
        "first": "The first port of the interval.",
        "count": "How many ports it holds.",
        "purpose": "What binds it: `kv_events`, `grpc`, …",
        "owner": "The process, worker, service or frontend it belongs to.",
    },
    "Check": {
        "name": "The check's name.",
        "on_failure": "Whether a failure fails the job or is only reported.",
        "targets": "What it verifies: ranks, workers, or the whole deployment.",
        "timeout": "Seconds it may take; null for the check's own limit.",
        "settings": "Numbers of its own, such as `requests` and `concurrency` of `load`.",
    },
    "CheckTarget": {
        "worker": "Name of the worker; empty for the whole deployment.",
        "dp_rank": "Global data-parallel rank inside the worker; null for the whole worker.",
    },
    "SlurmRequest": {
        "time_limit": "Time limit in Slurm's notation; null for that of the partition.",
        "account": "Account; null for the user's default.",
        "partition": "Partition; null for the cluster's default.",
        "gpus_directive": "Whether GPUs are asked for (`--gpus-per-node`).",
        "exclusive": "Whether nodes are asked for exclusively.",
        "segment": "Whether all nodes are asked for in one segment.",
        "directives": "Further `#SBATCH` options without dashes; null for one without a value.",
    },
    "Health": {
        "startup": "Seconds from the start of the steps until every process is up.",
        "gate": "Seconds from then until every rank is registered.",
    },
    "Runtime": {
        "python": "Python on the nodes that runs the checks.",
        "network_interface": "Interface whose address counts; null for the address of the node's name.",
        "mpi": "How `srun` starts the ranks of a worker whose launcher is `mpi`.",
        "container": "How processes enter their images: `pyxis`, `apptainer`, or `none`.",
        "mounts": "What is mounted into every container: `SOURCE:TARGET[:OPTIONS]`.",
    },
    "Diagnostic": {
        "code": "Stable identifier, `area/what`.",
        "severity": "How bad it is.",
        "message": "What is the matter, in a sentence.",
        "path": "Dotted path of the value in the recipe or profile.",
        "hint": "What helps.",
        "related": "Other places that it is about.",
    },
    "Related": {"message": "What stands there.", "path": "Dotted path of the value."},
}

#: Where a finding stands is flat in JSON (`Diagnostic.as_dict`).
_PLACE: dict[str, Any] = {
    "file": {"type": "string", "description": "The file, as it was named."},
    "line": {"type": "integer", "description": "Line, from 1."},
    "column": {"type": "integer", "description": "Column, from 1."},
    "end_column": {"type": "integer", "description": "Column after the last, on the same line."},
}
#: Other keys of these are left out when they are empty; everything else in a plan is always there.
_REQUIRED = {"Diagnostic": ["code", "severity", "message"], "Related": ["message"]}


def plan_schema() -> dict[str, Any]:
    """What `plan_dict` gives, as JSON Schema. Raises KeyError for a field that has no words in DESCRIPTIONS."""
    whole = adapter().json_schema(mode="serialization")
    definitions = {name: _closed(name, node) for name, node in whole.pop("$defs").items() if name != "Span"}
    plan = _closed("Plan", whole)
    plan["properties"]["version"] = {"const": PLAN_VERSION, "description": DESCRIPTIONS["Plan"]["version"]}
    return {"$defs": definitions} | plan


def _closed(name: str, node: dict[str, Any]) -> dict[str, Any]:
    """The table `node` with every key documented, required, and no others allowed."""
    properties: dict[str, Any] = {}
    for key, value in node["properties"].items():
        if key == "span":
            properties |= _PLACE
        else:
            kept = {k: v for k, v in value.items() if k not in ("title", "default")}
            properties[key] = kept | {"description": DESCRIPTIONS[name][key]}
    closed = {"type": "object", "properties": properties, "additionalProperties": False}
    closed["required"] = _REQUIRED.get(name, list(properties))
    return ({"description": node["description"]} if "description" in node else {}) | closed
