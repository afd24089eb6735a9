"""The vLLM backend: one answer a method, each made in its own module."""

from __future__ import annotations

from collections.abc import Mapping

from srtctl.backends.base import Command, Layout, ProcessContext, ProcessShape, WorkerShape, sidecar_module
from srtctl.backends.launch import Launch, launch_of
from srtctl.backends.openengine import default_name
from srtctl.backends.rules import check_knobs, check_served_names
from srtctl.backends.vllm import rules
from srtctl.backends.vllm.command import engine_command
from srtctl.backends.vllm.ports import PORT_FLAGS, port_needs
from srtctl.backends.vllm.topology import Parallelism, Spread, parallelism, shares, spread_of
from srtctl.diagnostics import Diagnostic
from srtctl.recipe.model import Recipe


class VllmBackend:
    """vLLM's own server (`vllm-rs serve`, `vllm serve`), or vLLM inside `python3 -m dynamo.vllm`."""

    name = "vllm"

    def check_recipe(self, recipe: Recipe) -> list[Diagnostic]:
        return [*check_knobs(recipe), *check_served_names(self.name, recipe), *rules.check_knob_values(recipe)]

    def check(self, recipe: Recipe, role_name: str, gpus: int) -> list[Diagnostic]:
        args = recipe.arguments[role_name]
        sizes, problems = parallelism(args)
        problems += rules.check_arguments(recipe, role_name, tuple(PORT_FLAGS))
        return problems or list(rules.check_sizes(role_name, args, sizes, gpus))

    def shape(self, recipe: Recipe, role_name: str, layout: Layout) -> tuple[WorkerShape | None, list[Diagnostic]]:
        role, args = recipe.roles[role_name], recipe.arguments[role_name]
        sizes, _ = parallelism(args)
        if problems := list(rules.check_layout(role_name, args, sizes, layout)):
            return None, problems
        launch, spread = launch_of(recipe, role), _spread(recipe, sizes, layout)
        processes = tuple(
            ProcessShape(
                ports=tuple(port_needs(recipe, role_name, sizes, spread, launch, share, leader=node == 0)),
                serves=share.serves,
                runs=share.ranks,
                publisher_ranks=share.ranks if role.kv_events is not None else (),
                sidecar=launch is Launch.native and not share.headless,
                registers=launch is Launch.wrapper and not share.headless,
            )
            for node, share in enumerate(shares(sizes, layout.nnodes, spread))
        )
        return WorkerShape(sizes.dp, processes, "task" if spread is Spread.rank else "node"), []

    def served_name(self, recipe: Recipe, model_path: str) -> str:
        """The first `--served-model-name` of any role (vLLM takes several), else the model's path as written."""
        for args in recipe.arguments.values():
            if found := args.get("served-model-name"):
                return str(found.value[0] if isinstance(found.value, list) and found.value else found.value)
        return default_name(recipe, model_path)

    def command(self, recipe: Recipe, role_name: str, shape: WorkerShape, context: ProcessContext) -> Command:
        sizes, _ = parallelism(recipe.arguments[role_name])
        spread = _spread(recipe, sizes, Layout((context.gpus,) * context.nnodes))
        process = shape.processes[context.node_rank]
        served = self.served_name(recipe, context.model_path)
        return engine_command(recipe, role_name, served, spread, process, context)

    def sidecar(self, recipe: Recipe, role_name: str, context: ProcessContext) -> tuple[str, ...]:  # noqa: ARG002
        """Every node that serves has a full sidecar of its own. vLLM does not tell its role: the sidecar is told."""
        argv = sidecar_module(self.name, context.ports["grpc"])
        return argv if role_name == "agg" else (*argv, "--disaggregation-mode", role_name)

    def files(self, recipe: Recipe, role_name: str) -> Mapping[str, str]:  # noqa: ARG002
        return {}


def _spread(recipe: Recipe, sizes: Parallelism, layout: Layout) -> Spread:
    """Before frontend `vllm` clients talk to the leader of the one worker, which balances over the ranks of all nodes."""
    return spread_of(
        sizes, layout, one_endpoint=recipe.frontend.type == "vllm", process_a_rank=rules.process_a_rank(recipe)
    )
