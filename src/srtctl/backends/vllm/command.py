"""The command line of a vLLM process."""

from __future__ import annotations

from collections.abc import Mapping

from srtctl.backends.base import Command, ProcessContext, ProcessShape, flags
from srtctl.backends.kv_events import DISCOVERED, config_text
from srtctl.backends.kv_events import FLAG as KV_EVENTS_FLAG
from srtctl.backends.launch import Launch, launch_of
from srtctl.backends.openengine import is_openengine, server_flags
from srtctl.backends.vllm.connectors import FLAG as TRANSFER_FLAG
from srtctl.backends.vllm.connectors import NAME as CONNECTOR
from srtctl.backends.vllm.connectors import transfer_of
from srtctl.backends.vllm.ports import PORT_FLAGS
from srtctl.backends.vllm.topology import Spread
from srtctl.recipe.arguments import Arguments, words
from srtctl.recipe.model import Recipe

_Flags = list[tuple[str, str | None]]

_RENDERED_BY_US = {
    "served-model-name",
    "disaggregation-mode",
    CONNECTOR,
    KV_EVENTS_FLAG,
    TRANSFER_FLAG,
    *PORT_FLAGS,
}

#: User flags that the spread of a worker over nodes says as well.
_OF_SPREAD = {
    Spread.one: frozenset[str](),
    Spread.hybrid: frozenset({"data-parallel-hybrid-lb"}),
    Spread.central: frozenset({"data-parallel-hybrid-lb"}),
    Spread.replica: frozenset({"distributed-executor-backend"}),
    Spread.rank: frozenset[str](),
}

#: Only where the OpenAI server runs: a headless node refuses it.
_SERVER_ONLY = {"api-server-count"}


def engine_command(
    recipe: Recipe, role: str, served: str, spread: Spread, process: ProcessShape, context: ProcessContext
) -> Command:
    """The command of one node's process; what all nodes of the worker share comes first."""
    launch, args = launch_of(recipe, recipe.roles[role]), recipe.arguments[role]
    headless = not process.serves
    common: _Flags = []
    if launch is Launch.wrapper and role != "agg":
        common.append(("disaggregation-mode", role))
    common += _common_flags(spread, process, context)
    transfer, _ = transfer_of(recipe, role)
    if transfer.text is not None:
        common.append((TRANSFER_FLAG, transfer.text))
    left_out = _RENDERED_BY_US | _OF_SPREAD[spread] | (_SERVER_ONLY if headless else set())
    user = [word for item in args if item.flag not in left_out for word in words(item)]
    own = _own_flags(spread, process, context, launch)
    if is_openengine(recipe, role) and process.serves:
        own = [flag for flag in own if flag[0] != "grpc-port"] + server_flags(context.ports["grpc"])
    if (events := recipe.roles[role].kv_events) is not None and process.publisher_ranks:
        base = context.ports.get("kv_events", DISCOVERED)
        config = config_text(events, args.get(KV_EVENTS_FLAG), base, enable_kv_cache_events=True)
        own.append((KV_EVENTS_FLAG, config))
    argv = (*_program(launch, spread, context.model_path), *_names(args, served), *flags(common), *user, *flags(own))
    return Command(argv, _environment(launch, spread, context), None if headless else _ready_port(launch, context))


def _program(launch: Launch, spread: Spread, model: str) -> tuple[str, ...]:
    if launch is Launch.wrapper:
        return ("python3", "-m", "dynamo.vllm", "--model", model)
    if launch is Launch.server:
        return ("vllm", "serve", model)
    # The Rust launcher starts one node alone. Over nodes Python coordinates, and starts the Rust server where one is due.
    return (
        ("vllm-rs", "serve", model)
        if spread is Spread.one
        else ("python3", "-m", "vllm.entrypoints.cli.main", "serve", model)
    )


def _names(args: Arguments, served: str) -> tuple[str, ...]:
    written = args.get("served-model-name")
    return words(written) if written else ("--served-model-name", served)


def _common_flags(spread: Spread, process: ProcessShape, context: ProcessContext) -> _Flags:
    """How the nodes of the worker find each other."""
    if spread is Spread.replica:
        return [
            ("distributed-executor-backend", "mp"),
            ("nnodes", str(context.nnodes)),
            ("master-addr", context.leader_address),
            ("master-port", str(context.leader_ports["master"])),
        ]
    if spread is Spread.one:
        return []
    found: _Flags = [
        ("data-parallel-address", context.leader_address),
        ("data-parallel-rpc-port", str(context.leader_ports["dp_rpc"])),
    ]
    if spread is Spread.rank:
        return found
    found.insert(0, ("data-parallel-size-local", str(len(process.runs))))
    return [*found, ("data-parallel-hybrid-lb", None)] if spread is Spread.hybrid else found


def _own_flags(spread: Spread, process: ProcessShape, context: ProcessContext, launch: Launch) -> _Flags:
    """What is of this node alone."""
    found: _Flags = []
    if spread is Spread.replica:
        found.append(("node-rank", str(context.node_rank)))
    elif spread is Spread.rank:
        found.append(("data-parallel-rank", str(process.runs[0])))
    elif spread is not Spread.one:
        found.append(("data-parallel-start-rank", str(process.runs[0])))
    if not process.serves:
        return [*found, ("headless", None)]
    if launch is not Launch.wrapper:
        found.append(("host", "0.0.0.0"))
    here = PORT_FLAGS if spread is Spread.one else {"port": "http", "grpc-port": "grpc"}
    return [
        *found,
        *((flag, str(context.ports[purpose])) for flag, purpose in here.items() if purpose in context.ports),
    ]


def _environment(launch: Launch, spread: Spread, context: ProcessContext) -> Mapping[str, str]:
    env = {}
    if launch is Launch.native and spread is not Spread.one:
        env["VLLM_USE_RUST_FRONTEND"] = "1"  # the Python server has no gRPC for the sidecar
    if "nixl" in context.ports:
        # vLLM's own default is localhost, which another node cannot reach.
        env |= {
            "VLLM_NIXL_SIDE_CHANNEL_HOST": context.address,
            "VLLM_NIXL_SIDE_CHANNEL_PORT": str(context.ports["nixl"]),
        }
    if "bootstrap" in context.ports:
        env["VLLM_MOONCAKE_BOOTSTRAP_PORT"] = str(context.ports["bootstrap"])
    return env


def _ready_port(launch: Launch, context: ProcessContext) -> int:
    """What answers when the process is up: native gRPC, Dynamo's status server, or its HTTP server."""
    return context.ports[{Launch.native: "grpc", Launch.wrapper: "system", Launch.server: "http"}[launch]]
