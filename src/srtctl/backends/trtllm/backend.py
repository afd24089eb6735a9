"""The TensorRT-LLM backend: shapes, ports, command lines and the engine's file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

import yaml

from srtctl.backends.base import Command, Layout, PortNeed, ProcessContext, ProcessShape, WorkerShape, sidecar_module
from srtctl.backends.launch import Launch, launch_of
from srtctl.backends.rules import check_knobs
from srtctl.backends.trtllm import rules
from srtctl.backends.trtllm.rules import SERVED_NAME, parallelism
from srtctl.diagnostics import Diagnostic
from srtctl.recipe.model import Recipe
from srtctl.references import bundle_file

#: What answers when the leader is up: native gRPC, Dynamo's status server, or its HTTP server.
_READY = {Launch.native: "grpc", Launch.wrapper: "system", Launch.server: "http"}


class TrtllmBackend:
    """`trtllm-serve`, its gRPC server, or TensorRT-LLM inside `python3 -m dynamo.trtllm`; one MPI job a worker."""

    name = "trtllm"

    def check_recipe(self, recipe: Recipe) -> list[Diagnostic]:
        return [*check_knobs(recipe), *rules.check_recipe(recipe)]

    def check(self, recipe: Recipe, role_name: str, gpus: int) -> list[Diagnostic]:
        args = recipe.arguments[role_name]
        sizes, problems = parallelism(args)
        problems += rules.check_arguments(recipe, role_name)
        return problems or list(rules.check_sizes(role_name, args, sizes, gpus))

    def shape(self, recipe: Recipe, role_name: str, layout: Layout) -> tuple[WorkerShape | None, list[Diagnostic]]:
        """Only the leader, which is rank 0, takes requests; the others are MPI ranks that nobody talks to."""
        sizes, _ = parallelism(recipe.arguments[role_name])
        launch = launch_of(recipe, recipe.roles[role_name])
        # The wrapper alone tells the router of attention DP; the others register one rank, or none.
        dp = sizes.tp if sizes.attention_dp and launch is Launch.wrapper else 1
        leader = ProcessShape(
            ports=tuple(_port_needs(launch)),
            serves=tuple(range(dp)),
            sidecar=launch is Launch.native,
            registers=launch is Launch.wrapper,
        )
        followers = (ProcessShape(ports=(), serves=()) for _ in layout.gpus[1:])
        return WorkerShape(dp, (leader, *followers), "mpi"), []

    def served_name(self, recipe: Recipe, model_path: str) -> str:
        """`engine.served_model_name`; else the model's path behind a sidecar, and its last part elsewhere."""
        if name := recipe.engine.knobs.get(SERVED_NAME):
            return str(name)
        native = any(launch_of(recipe, role) is Launch.native for role in recipe.roles.values())
        return model_path if native or not model_path.startswith("/") else PurePosixPath(model_path).name

    def command(self, recipe: Recipe, role_name: str, shape: WorkerShape, context: ProcessContext) -> Command:
        launch = launch_of(recipe, recipe.roles[role_name])
        config, ports = bundle_file(_file_name(role_name)), context.leader_ports
        argv = ["trtllm-llmapi-launch"]
        if launch is Launch.wrapper:
            argv += ["python3", "-m", "dynamo.trtllm", "--model-path", context.model_path]
            argv += ["--served-model-name", self.served_name(recipe, context.model_path)]
            argv += ["--disaggregation-mode", role_name] if role_name != "agg" else []
            argv += ["--extra-engine-args", config]
            argv += ["--publish-kv-events"] if recipe.roles[role_name].kv_events is not None else []
        else:
            grpc = launch is Launch.native
            program = ["python3", "-m", "tensorrt_llm.commands.serve"] if grpc else ["trtllm-serve"]
            argv += [*program, context.model_path, *(_openengine(role_name) if grpc else [])]
            argv += ["--host", "0.0.0.0", "--port", str(ports["grpc" if grpc else "http"])]
            argv += ["--extra_llm_api_options", config]
        # All ranks meet at rank 0, wherever its node stands in a sorted list.
        env = {"MASTER_ADDR": context.leader_address, "MASTER_PORT": str(ports["master"])}
        serves = bool(shape.processes[context.node_rank].serves)
        return Command(tuple(argv), env, context.ports[_READY[launch]] if serves else None)

    def sidecar(self, recipe: Recipe, role_name: str, context: ProcessContext) -> tuple[str, ...]:
        """OpenEngine of ai-dynamo 1.6.1 tells neither role nor tokenizer, and not every engine its context length."""
        argv = (*sidecar_module(self.name, context.ports["grpc"]), "--model-path", context.model_path)
        if length := recipe.arguments[role_name].get("max-seq-len"):
            argv += ("--context-length", str(length.value))
        return argv if role_name == "agg" else (*argv, "--disaggregation-mode", role_name)

    def files(self, recipe: Recipe, role_name: str) -> Mapping[str, str]:
        """The arguments of the role, as the engine reads them: all of them, as they are, under its own names."""
        args = recipe.roles[role_name].args
        keys = {key.lstrip("-").replace("-", "_"): value for key, value in args.items()}
        text = yaml.safe_dump(dict(sorted(keys.items())), sort_keys=False, allow_unicode=True, width=120)
        return {_file_name(role_name): text}


def _openengine(role: str) -> list[str]:
    """gRPC is SMG by default, which no sidecar speaks; OpenEngine tells the role to those who ask."""
    server_role = {"prefill": "CONTEXT", "decode": "GENERATION"}.get(role)
    return ["--grpc", "--grpc-protocol", "openengine", *(["--server_role", server_role] if server_role else [])]


def _file_name(role: str) -> str:
    return f"trtllm-{role}.yaml"


def _port_needs(launch: Launch) -> Iterator[PortNeed]:
    yield PortNeed("master")
    if launch is Launch.server:
        yield PortNeed("http")
    else:
        yield PortNeed("system")
    if launch is Launch.native:
        yield PortNeed("grpc")
