"""The SGLang backend: shapes, ports and command lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from srtctl.backends.base import (
    Command,
    Layout,
    PortNeed,
    ProcessContext,
    ProcessShape,
    WorkerShape,
    flags,
    sidecar_module,
)
from srtctl.backends.kv_events import config_text, port_need
from srtctl.backends.launch import Launch, launch_of
from srtctl.backends.openengine import default_name, is_openengine, server_flags
from srtctl.backends.rules import check_knobs, check_served_names, need
from srtctl.backends.sglang import rules
from srtctl.backends.sglang.topology import Parallelism, parallelism, publisher_ranks
from srtctl.diagnostics import Diagnostic
from srtctl.recipe.arguments import Arguments, words
from srtctl.recipe.model import Recipe, Role

#: User flags that hold one port, and the purpose under which it is claimed.
PORT_FLAGS = {
    "port": "http",
    "grpc-port": "grpc",
    "nccl-port": "nccl",
    "disaggregation-bootstrap-port": "bootstrap",
}

#: SGLang binds more than the port of `--dist-init-addr`: with attention DP the ZMQ sockets of tokenizer, detokenizer,
#: RPC and metrics lie at +1…+5, the schedulers' at +6 and one a DP rank, a handshake at +13.
DIST_INIT_EXTRA = 16

MODULES: Mapping[Launch, str] = {
    Launch.native: "sglang.launch_server",
    Launch.wrapper: "dynamo.sglang",
    Launch.server: "sglang.launch_server",
}

_RENDERED_BY_US = {
    "served-model-name",
    "kv-events-config",
    "disaggregation-mode",
    "incremental-streaming-output",
    *PORT_FLAGS,
}


class SglangBackend:
    """`python3 -m sglang.launch_server`, or SGLang inside `python3 -m dynamo.sglang`."""

    name = "sglang"

    def check_recipe(self, recipe: Recipe) -> list[Diagnostic]:
        return [*check_knobs(recipe), *check_served_names(self.name, recipe)]

    def check(self, recipe: Recipe, role_name: str, gpus: int) -> list[Diagnostic]:
        args = recipe.arguments[role_name]
        sizes, problems = parallelism(args)
        problems += rules.check_arguments(recipe, role_name, PORT_FLAGS)
        return problems or list(rules.check_sizes(role_name, args, sizes, gpus))

    def shape(self, recipe: Recipe, role_name: str, layout: Layout) -> tuple[WorkerShape | None, list[Diagnostic]]:
        role = recipe.roles[role_name]
        args = recipe.arguments[role_name]
        sizes, _ = parallelism(args)
        if problems := list(rules.check_layout(role_name, args, sizes, layout)):
            return None, problems
        launch = launch_of(recipe, role)
        publishing = role.kv_events is not None and role.kv_events.publisher == "zmq"
        ranks = publisher_ranks(sizes, layout.nnodes) if publishing else ((),) * layout.nnodes
        processes = []
        for node_rank in range(layout.nnodes):
            # A follower without a publisher stays engine-only (dynamo #14908: its sidecar would exit at once).
            sidecar = launch is Launch.native and (node_rank == 0 or bool(ranks[node_rank]))
            registers = launch is Launch.wrapper
            needs = _port_needs(role_name, args, sizes, role, layout, node_rank, launch, sidecar)
            serves = tuple(range(sizes.dp)) if node_rank == 0 else ()
            shape = ProcessShape(tuple(needs), serves, (), ranks[node_rank], sidecar, registers)
            processes.append(shape)
        return WorkerShape(sizes.dp, tuple(processes)), []

    def served_name(self, recipe: Recipe, model_path: str) -> str:
        """`--served-model-name` of any role, else the model's path as written, which is SGLang's own default."""
        for args in recipe.arguments.values():
            if found := args.get("served-model-name"):
                return str(found.value)
        return default_name(recipe, model_path)

    def command(self, recipe: Recipe, role_name: str, shape: WorkerShape, context: ProcessContext) -> Command:
        role = recipe.roles[role_name]
        launch = launch_of(recipe, role)
        args = recipe.arguments[role_name]
        process = shape.processes[context.node_rank]
        common: list[tuple[str, str | None]] = [
            ("model-path", context.model_path),
            ("served-model-name", self.served_name(recipe, context.model_path)),
            ("host", "0.0.0.0"),
        ]
        if context.nnodes > 1:
            common += [
                ("dist-init-addr", f"{context.leader_address}:{context.leader_ports['dist_init']}"),
                ("nnodes", str(context.nnodes)),
            ]
        if role_name != "agg":
            common.append(("disaggregation-mode", role_name))
        user = [word for item in args if item.flag not in _RENDERED_BY_US for word in words(item)]
        user += _incremental_streaming(args, launch)
        own: list[tuple[str, str | None]] = [("node-rank", str(context.node_rank))] if context.nnodes > 1 else []
        ports = {flag: context.ports[purpose] for flag, purpose in PORT_FLAGS.items() if purpose in context.ports}
        if is_openengine(recipe, role_name) and (port := ports.pop("grpc-port", None)):
            own += server_flags(port)
            # Decode engines are told where its bootstrap server is: all its servers listen on 0.0.0.0
            own += [("openengine-advertise-host", context.address)] if role_name == "prefill" else []
        own += [(flag, str(port)) for flag, port in ports.items()]
        if role.kv_events is not None:
            config = config_text(role.kv_events, args.get("kv-events-config"), context.ports["kv_events"])
            own.append(("kv-events-config", config))
        argv = ("python3", "-m", MODULES[launch], *flags(common), *user, *flags(own))
        # Wheels ship the native server; without this SGLang tries to compile it at start-up.
        env = {"SGLANG_RUST_BUILD_MODE": "never"} if launch is Launch.native else {}
        return Command(argv, env, _ready_port(launch, process, context))

    def sidecar(self, recipe: Recipe, role_name: str, context: ProcessContext) -> tuple[str, ...]:  # noqa: ARG002
        """A follower's is started with the endpoint alone: Dynamo reads `GetServerInfo` and selects telemetry mode itself.

        The bootstrap address goes to the prefill *leader's* sidecar only (srt-slurm #473).
        """
        argv = sidecar_module("sglang", context.ports["grpc"])
        if role_name == "prefill" and context.node_rank == 0:
            argv += ("--bootstrap-host", context.leader_address)
        return argv

    def files(self, recipe: Recipe, role_name: str) -> Mapping[str, str]:  # noqa: ARG002
        return {}


def _ready_port(launch: Launch, process: ProcessShape, context: ProcessContext) -> int | None:
    """What answers when the process is up: native gRPC, Dynamo's status server, or the leader's HTTP server."""
    if process.sidecar:
        return context.ports["grpc"]
    if launch is Launch.wrapper:
        return context.ports["system"]
    return context.ports["http"]


def _port_needs(
    role_name: str,
    args: Arguments,
    sizes: Parallelism,
    role: Role,
    layout: Layout,
    node_rank: int,
    launch: Launch,
    sidecar: bool,
) -> Iterator[PortNeed]:
    fixed = {purpose: args.get(flag) for flag, purpose in PORT_FLAGS.items()}
    yield need("http", fixed["http"])
    if node_rank == 0 and layout.nnodes > 1:
        yield PortNeed("dist_init", DIST_INIT_EXTRA + sizes.dp)
    # Ordinary DP behind a sidecar: SGLang must pick separate NCCL ports for its independent TP groups itself.
    if not (sizes.ordinary_dp and launch is Launch.native):
        yield need("nccl", fixed["nccl"])
    if sidecar:
        yield need("grpc", fixed["grpc"])
    if sidecar or launch is Launch.wrapper:
        yield PortNeed("system")
    if role_name == "prefill":
        yield replace(need("bootstrap", fixed["bootstrap"]), common=True)
    if role.kv_events is not None:
        yield port_need(args, sizes.dp)


def _incremental_streaming(args: Arguments, launch: Launch) -> tuple[str, ...]:
    """The sidecar needs deltas on every rank; what the recipe says wins."""
    if written := args.get("incremental-streaming-output"):
        return words(written) if written.value is not False else ()
    return ("--incremental-streaming-output",) if launch is Launch.native else ()
