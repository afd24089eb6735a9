"""The settings that one engine alone has, beside `engine.type`: what `explain`, the schema and the backends know of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: what it does, what may be written (in words, and as JSON Schema), and what applies without it."""

    doc: str
    type: str
    default: str = "not set"
    schema: Mapping[str, Any] = field(default_factory=dict)


_NUMBER, _COUNT = {"type": "number"}, {"type": "integer", "minimum": 1}


def _flag(flag: str, doc: str, kind: str, schema: Mapping[str, Any]) -> Setting:
    return Setting(f"{doc} (`--{flag}` of every role; a role's `args` win).", kind, "the mocker's own", schema)


#: By engine. What a setting may hold is checked by the engine's backend.
SETTINGS: Mapping[str, Mapping[str, Setting]] = {
    "sglang": {},
    "vllm": {
        "connector": Setting(
            "How KV caches go from prefill to decode; a role's `args` win.",
            "`nixl`, `lmcache`, `mooncake`, `kvbm`, a mapping (`--kv-transfer-config`) or null",
            "nixl for prefill and decode",
            {"type": ["string", "object", "null"]},
        ),
        "allow_prefill_decode_colocation": Setting(
            "Changes nothing: `roles.decode.nodes: colocate` shares the prefill nodes.",
            "true or false",
            "false",
            {"type": "boolean"},
        ),
        "dp_launch_mode": Setting(
            "One process for the DP ranks of a node, or a process for each rank.",
            "`per_node` or `per_gpu`",
            "per_node",
            {"enum": ["per_node", "per_gpu"]},
        ),
    },
    "trtllm": {
        "served_model_name": Setting(
            "Model name of `dynamo.trtllm`, so only without a sidecar.",
            "text",
            "the last part of the model's path",
            {"type": "string"},
        ),
    },
    "mocker": {
        "engine_type": _flag("engine-type", "Whose scheduler it imitates", "text", {"type": "string"}),
        "speedup_ratio": _flag("speedup-ratio", "How much faster than real it is; 0: no waiting", "a number", _NUMBER),
        "decode_speedup_ratio": _flag("decode-speedup-ratio", "The same, for decode steps", "a number", _NUMBER),
        "block_size": _flag("block-size", "Tokens of a KV block", "a whole number", _COUNT),
        "max_num_batched_tokens": _flag("max-num-batched-tokens", "Tokens of a batch", "a whole number", _COUNT),
        "max_num_seqs": _flag("max-num-seqs", "Sequences of a batch", "a whole number", _COUNT),
        "num_gpu_blocks_override": _flag(
            "num-gpu-blocks-override", "How many KV blocks a rank has", "a whole number", _COUNT
        ),
    },
}


def described() -> dict[str, Setting]:
    """Every setting by name; its documentation begins with the engine that has it."""
    return {
        name: Setting(f"`{engine}`: {one.doc[0].lower()}{one.doc[1:]}", one.type, one.default, one.schema)
        for engine, settings in SETTINGS.items()
        for name, one in settings.items()
    }


def extend_schema(schema: dict[str, Any]) -> None:
    """Add the settings to the JSON Schema of `engine`."""
    schema["properties"] |= {name: {**one.schema, "description": one.doc} for name, one in described().items()}
