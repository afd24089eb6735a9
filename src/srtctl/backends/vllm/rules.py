"""What cannot run on vLLM, said before the queue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from srtctl.backends.base import Layout
from srtctl.backends.kv_events import check_config
from srtctl.backends.launch import Launch, launch_of
from srtctl.backends.rules import (
    check_dynamo_only,
    check_even,
    check_kv_events_on,
    check_mode,
    check_owned,
    check_ports,
    gpu_count,
    path_of,
)
from srtctl.backends.vllm.connectors import transfer_of
from srtctl.backends.vllm.topology import DATA, TENSOR, Parallelism
from srtctl.diagnostics import Diagnostic, did_you_mean
from srtctl.recipe.arguments import Arguments
from srtctl.recipe.model import Recipe

_PLACED = "it follows from the placement"

#: Flags that srtctl derives from the plan. Value: what to write instead.
OWNED: Mapping[str, str] = {
    "model": "write `model.path`",
    "host": "every server listens on 0.0.0.0",
    "headless": _PLACED,
    "nnodes": _PLACED,
    "node-rank": _PLACED,
    "master-addr": "it is the leader's address",
    "master-port": "it is a claimed port",
    "data-parallel-address": "it is the leader's address",
    "data-parallel-rank": _PLACED,
    "data-parallel-size-local": _PLACED,
    "data-parallel-start-rank": _PLACED,
}

#: A permission of the v1 layout; ours says where decode runs.
COLOCATION = "allow_prefill_decode_colocation"

#: How DP ranks become processes: one runs all of its node, or each has its own (vLLM's external load balancing).
DP_LAUNCH, PER_NODE, PER_GPU = "dp_launch_mode", "per_node", "per_gpu"

#: Spellings of sizes that other engines know; vLLM has only the long ones (and single-dash short ones).
_SHORT = {"tp": TENSOR[0], "tp-size": TENSOR[0], "dp": DATA[0], "dp-size": DATA[0], "pp": "pipeline-parallel-size",
          "pp-size": "pipeline-parallel-size"}  # fmt: skip

#: Other ways to serve, which the sidecar cannot use: it wants the gRPC service of the one Rust frontend of its node.
_NOT_WITH_SIDECAR = ("grpc", "data-parallel-external-lb", "data-parallel-multi-port-external-lb")


def check_knob_values(recipe: Recipe) -> Iterator[Diagnostic]:
    """What the launch mode rules out; a warning where decode may share the prefill nodes, but has nodes of its own."""
    decode = recipe.roles.get("decode")
    yield from _check_launch_mode(recipe)
    if recipe.engine.knobs.get(COLOCATION) and decode is not None and decode.nodes != "colocate":
        yield Diagnostic(
            "vllm/colocation",
            f"`{COLOCATION}` alone moves nothing: decode has nodes of its own",
            f"engine.{COLOCATION}",
            hint="write `roles.decode.nodes: colocate` to share the prefill nodes",
            severity="warning",
        )


def process_a_rank(recipe: Recipe) -> bool:
    """Whether each DP rank is a process of its own."""
    return bool(recipe.engine.knobs.get(DP_LAUNCH) == PER_GPU)


def _check_launch_mode(recipe: Recipe) -> Iterator[Diagnostic]:
    mode, path = recipe.engine.knobs.get(DP_LAUNCH, PER_NODE), f"engine.{DP_LAUNCH}"
    if mode not in (PER_NODE, PER_GPU):
        message = f"`{DP_LAUNCH}` must be `{PER_NODE}` or `{PER_GPU}`, not {mode!r}"
        yield Diagnostic("vllm/dp-launch", message, path, hint=did_you_mean(str(mode), (PER_NODE, PER_GPU)))
    if mode != PER_GPU:
        return
    hint = f"write `{PER_NODE}`"
    if recipe.frontend.type == "vllm":
        message = f"with `{DP_LAUNCH}: {PER_GPU}` each rank has a server, and frontend `vllm` is one of them alone"
        yield Diagnostic("vllm/dp-launch", message, path, hint=f"{hint}, or use `vllm-router` or `dynamo`")
    for name, role in recipe.roles.items():
        if launch_of(recipe, role) is Launch.native:
            message = f"with `{DP_LAUNCH}: {PER_GPU}` vLLM has no gRPC server for the sidecar of role `{name}`"
            yield Diagnostic("vllm/dp-launch", message, path, hint=f"{hint}, or set `roles.{name}.sidecar: false`")
        for item in recipe.arguments[name].all("data-parallel-hybrid-lb"):
            message = f"`--{item.flag}` is one process for the ranks of a node, which `{DP_LAUNCH}: {PER_GPU}` is not"
            yield Diagnostic("vllm/dp-launch", message, item.path, hint=f"remove it, or {hint}")


def check_arguments(recipe: Recipe, role: str, ports: tuple[str, ...]) -> Iterator[Diagnostic]:
    """Faults that can be seen in one role alone; `ports` are the flags that hold one."""
    args, launch = recipe.arguments[role], launch_of(recipe, recipe.roles[role])
    yield from check_owned("vllm", args, OWNED)
    yield from check_kv_events_on("vllm", recipe, role)
    yield from check_dynamo_only("vllm", "vLLM", args, launch)
    yield from check_mode("vllm", role, args, "agg")
    yield from check_ports(args, ports)
    yield from check_config(args, discoverable=launch is Launch.native)
    for flag, long in _SHORT.items():
        for item in args.all(flag):
            yield Diagnostic("vllm/size-name", f"vLLM has no `--{flag}`", item.path, hint=f"write `{long}`")
    if launch is Launch.native:
        yield from _check_native(args)
    if recipe.roles[role].kv_events is not None:
        yield from _check_prefix_caching(role, args)
    transfer, problems = transfer_of(recipe, role)
    yield from problems
    if not problems and transfer.text is None and role != "agg":
        yield Diagnostic(
            "vllm/no-connector",
            f"role `{role}` has no KV connector, so decode would never get what prefill computed",
            transfer.path,
            hint="remove `connector` for NIXL, or set it, or give `kv-transfer-config`",
        )


def check_sizes(role: str, args: Arguments, sizes: Parallelism, gpus: int) -> Iterator[Diagnostic]:
    """Parallelism against the GPUs of one worker."""
    if sizes.gpus != gpus:
        parts = [("TP", sizes.tp), ("PP", sizes.pp), ("PCP", sizes.pcp), ("DP", sizes.dp)]
        formula = " x ".join(f"{name}{value}" for name, value in parts if name == "TP" or value > 1)
        yield gpu_count("vllm", role, formula, sizes.gpus, gpus, path_of(args, TENSOR, role))


def check_layout(role: str, args: Arguments, sizes: Parallelism, layout: Layout) -> Iterator[Diagnostic]:
    """Parallelism against where the worker lies."""
    if uneven := list(check_even("vllm", "vLLM", role, layout)):
        yield from uneven
        return
    if layout.nnodes == 1:
        return
    local = len(layout.gpus[0])
    if sizes.replica > local and sizes.dp > 1:
        yield Diagnostic(
            "vllm/replica-nodes",
            f"one replica of {sizes.replica} GPUs spans nodes, and this {role} worker would have {sizes.dp} of them",
            path_of(args, DATA, role),
            hint=f"use {sizes.dp} workers of {sizes.replica} GPUs, without `data-parallel-size`",
        )
    elif sizes.replica <= local and local % sizes.replica:
        yield Diagnostic(
            "vllm/replica-split",
            f"replicas of {sizes.replica} GPUs do not divide the {local} that this {role} worker has on a node",
            path_of(args, TENSOR, role),
            hint="choose sizes so that whole replicas fit on each node",
        )
    executor = args.get("distributed-executor-backend")
    if sizes.replica > local and executor is not None and executor.value != "mp":
        message = (
            f"a replica over nodes is started by srtctl, node by node, which executor `{executor.value}` does not do"
        )
        yield Diagnostic("vllm/executor", message, executor.path, hint="use `mp`, or leave it out")


def _check_native(args: Arguments) -> Iterator[Diagnostic]:
    for flag in _NOT_WITH_SIDECAR:
        for item in args.all(flag):
            if item.value is not False:
                message = f"`--{flag}` takes away the gRPC server that the sidecar talks to"
                yield Diagnostic("vllm/sidecar-server", message, item.path, hint="remove it, or set `sidecar: false`")
    servers = args.get("api-server-count")
    if servers is not None and str(servers.value) != "1":
        message = f"the sidecar talks to one server of its node, not to {servers.value}"
        yield Diagnostic("vllm/sidecar-server", message, servers.path, hint="remove it, or set `sidecar: false`")


def _check_prefix_caching(role: str, args: Arguments) -> Iterator[Diagnostic]:
    """Events tell what the prefix cache holds (vLLM publishes none without it)."""
    off = [item for item in args.all("no-enable-prefix-caching") if item.value is not False]
    off += [item for item in args.all("enable-prefix-caching") if item.value is False]
    for item in off:
        yield Diagnostic(
            "vllm/no-prefix-cache",
            f"role `{role}` publishes KV events, but its prefix cache is off, so there is nothing to publish",
            item.path,
            hint=f"remove it, or set `roles.{role}.kv_events: false`",
        )
