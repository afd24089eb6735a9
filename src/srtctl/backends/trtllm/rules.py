"""What cannot run on TensorRT-LLM, said before the queue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from srtctl.backends.launch import Launch, launch_of
from srtctl.backends.rules import gpu_count, path_of
from srtctl.backends.sizes import size
from srtctl.diagnostics import Diagnostic
from srtctl.recipe.arguments import Arguments
from srtctl.recipe.model import Recipe

TENSOR, PIPELINE = ("tensor-parallel-size",), ("pipeline-parallel-size",)
CONTEXT = ("context-parallel-size",)

#: The setting beside `engine.type`: the engine's file has no such key.
SERVED_NAME = "served_model_name"

#: Keys of the command line that the engine's file does not know. Value: what to write instead.
OWNED: Mapping[str, str] = {
    "model": "write `model.path`",
    "model-path": "write `model.path`",
    "host": "every server listens on 0.0.0.0",
    "port": "it is a claimed port, which `srtctl plan` shows",
    "disaggregation-mode": "the role decides",
    "served-model-name": f"write `engine: {{type: trtllm, {SERVED_NAME}: …}}`",
}


@dataclass(frozen=True, slots=True)
class Parallelism:
    """Sizes of one worker, which is one MPI job of TP x PP x CP ranks, one a GPU. Attention DP shares those of TP."""

    tp: int
    pp: int
    cp: int
    attention_dp: bool

    @property
    def gpus(self) -> int:
        return self.tp * self.pp * self.cp


def parallelism(args: Arguments) -> tuple[Parallelism, list[Diagnostic]]:
    """The sizes that `args` ask for, with a finding for each bad one."""
    found = [size(args, names) for names in (TENSOR, PIPELINE, CONTEXT)]
    problems = [problem for _, more in found for problem in more]
    tp, pp, cp = (value for value, _ in found)
    return Parallelism(tp, pp, cp, args.is_on("enable-attention-dp")), problems


def check_recipe(recipe: Recipe) -> Iterator[Diagnostic]:
    """Faults that no single role shows."""
    sidecars = [name for name, role in recipe.roles.items() if launch_of(recipe, role) is Launch.native]
    if SERVED_NAME in recipe.engine.knobs and sidecars:
        yield Diagnostic(
            "trtllm/served-name",
            f"behind a sidecar the model is called by its path; `engine.{SERVED_NAME}` reaches nothing",
            f"engine.{SERVED_NAME}",
            hint=f"remove it, or set `roles.{sidecars[0]}.sidecar: false`",
        )


def check_arguments(recipe: Recipe, role: str) -> Iterator[Diagnostic]:
    """Faults that can be seen in one role alone."""
    args, settings = recipe.arguments[role], recipe.roles[role]
    for flag, instead in OWNED.items():
        for item in args.all(flag):
            message = f"`{flag}` is no key of the engine's file"
            yield Diagnostic("trtllm/owned-flag", message, item.path, hint=f"remove it: {instead}")
    if settings.kv_events is not None and launch_of(recipe, settings) is not Launch.wrapper:
        yield Diagnostic(
            "trtllm/kv-events",
            "TensorRT-LLM publishes KV events through `python3 -m dynamo.trtllm` alone (ai-dynamo 1.6.1)",
            f"roles.{role}.kv_events",
            hint="set it to false, or use frontend `dynamo` without a sidecar",
        )
    if role != "agg" and args.get("cache-transceiver-config") is None:
        yield Diagnostic(
            "trtllm/no-transceiver",
            f"role `{role}` has no `cache_transceiver_config`, so decode would never get what prefill computed",
            f"roles.{role}.args",
            hint="for example `cache_transceiver_config: {backend: UCX, max_tokens_in_buffer: 8192}`",
        )


def check_sizes(role: str, args: Arguments, sizes: Parallelism, gpus: int) -> Iterator[Diagnostic]:
    """Parallelism against the GPUs of one worker. How they lie on nodes does not matter to MPI."""
    if sizes.gpus != gpus:
        parts = [("TP", sizes.tp), ("PP", sizes.pp), ("CP", sizes.cp)]
        formula = " x ".join(f"{name}{value}" for name, value in parts if name == "TP" or value > 1)
        yield gpu_count("trtllm", role, formula, sizes.gpus, gpus, path_of(args, TENSOR, role))
