"""`sidecar: {kind: openengine}`: the engine's side, its flags and what they do not carry. The other: `sidecars/`.

Sources: the public OpenEngine branches of SGLang and vLLM and of Dynamo (`lib/sidecar/openengine`), TensorRT-LLM's
`serve`, and running ai-dynamo 1.6.1, whose one OpenEngine sidecar is `dynamo.trtllm.sidecar`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from srtctl.backends.base import WorkerShape
from srtctl.diagnostics import Diagnostic
from srtctl.recipe.model import Recipe

PORT_FLAG = "openengine-port"
SERVES = frozenset({f"--{PORT_FLAG}", "openengine"})
"""Words of an engine's command that make it serve OpenEngine: one of them is there exactly then."""

#: Engine flags that mean LoRA adapters, and input other than text.
LORA = {"sglang": ("enable-lora", "lora-paths"), "vllm": ("enable-lora",), "trtllm": ("lora-config",)}
MULTIMODAL = {"sglang": ("enable-multimodal",), "vllm": ("limit-mm-per-prompt",), "trtllm": ()}

_RELEASED = "the OpenEngine sidecar of ai-dynamo 1.6.1"
_OTHER = "use `kind: native`, or name a sidecar that can in `roles.{role}.sidecar.binary`"


@dataclass(frozen=True, slots=True)
class Limit:
    """What does not work over OpenEngine. `engines` empty: whatever the engine.

    `released`: it is the sidecar of ai-dynamo 1.6.1 that cannot; one that the recipe names itself may.
    """

    feature: str
    reason: str
    hint: str
    engines: tuple[str, ...] = ()
    released: bool = False


#: Engine x feature; a role that has a feature of its row is refused. In the order in which they are looked at.
LIMITS: tuple[Limit, ...] = (
    Limit(
        "follower_sidecars",
        "OpenEngine has no telemetry mode: the KV events of a follower's ranks would reach nobody",
        "use `kind: native`, or `roles.{role}.kv_events: false`",
        ("sglang",),
    ),
    Limit(
        "lora",
        "TensorRT-LLM's OpenEngine server takes no LoRA adapters",
        "remove it, or use frontend `dynamo` without a sidecar",
        ("trtllm",),
    ),
    Limit("data_parallel", f"{_RELEASED} registers one DP rank a worker", _OTHER, released=True),
    Limit("kv_events", f"{_RELEASED} never asks for KV events", _OTHER, released=True),
    Limit("lora", f"{_RELEASED} refuses requests for LoRA adapters", _OTHER, released=True),
    Limit("multimodal", f"{_RELEASED} refuses multimodal requests", _OTHER, released=True),
)


def is_openengine(recipe: Recipe, role: str) -> bool:
    """Whether the recipe asks for OpenEngine between the role's engines and sidecars."""
    sidecar = recipe.roles[role].sidecar
    return sidecar is not None and sidecar.kind == "openengine" and recipe.frontend.type == "dynamo"


def default_name(recipe: Recipe, model_path: str) -> str:
    """The model's name where no flag gives one: its path as written; behind OpenEngine the path that the engine sees.

    The sidecar of ai-dynamo 1.6.1 registers the model under the path that it is told, whatever the engine calls it.
    """
    return model_path if any(is_openengine(recipe, role) for role in recipe.roles) else recipe.model.path


def server_flags(port: int) -> list[tuple[str, str | None]]:
    """What makes SGLang or vLLM serve OpenEngine on `port`, in place of the flag of its own gRPC."""
    return [("openengine-host", "0.0.0.0"), (PORT_FLAG, str(port))]


def check_openengine(engine: str, recipe: Recipe, role: str, shape: WorkerShape) -> Iterator[Diagnostic]:
    """What the role has and OpenEngine does not carry."""
    if not is_openengine(recipe, role):
        return
    path, args, settings = f"roles.{role}", recipe.arguments[role], recipe.roles[role]
    kind = f"{path}.sidecar.kind"
    places = {"data_parallel": kind} if shape.dp_size > 1 else {}
    if settings.kv_events is not None:
        places["kv_events"] = f"{path}.kv_events"
        if any(process.sidecar for process in shape.processes[1:]):
            places["follower_sidecars"] = f"{path}.kv_events"
    for feature, flags in (("lora", LORA), ("multimodal", MULTIMODAL)):
        if written := args.get(*flags[engine]):
            places[feature] = written.path
    named = settings.sidecar is not None and settings.sidecar.binary is not None
    said: set[str] = set()
    for limit in LIMITS:
        applies = limit.feature in places and engine in (limit.engines or (engine,))
        if applies and not (limit.released and named) and limit.feature not in said:
            said.add(limit.feature)
            where, hint = places[limit.feature], limit.hint.format(role=role)
            message = f"role `{role}` cannot use {limit.feature.replace('_', ' ')} over OpenEngine: {limit.reason}"
            yield Diagnostic("sidecar/openengine", message, where, hint=hint)
