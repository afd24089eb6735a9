"""`--kv-transfer-config`: how prefill hands its KV cache to decode. A name in the recipe stands for a configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from srtctl.backends.openengine import is_openengine
from srtctl.diagnostics import Diagnostic, did_you_mean
from srtctl.recipe.arguments import Argument, compact_json
from srtctl.recipe.model import Recipe

FLAG, NAME = "kv-transfer-config", "connector"

#: What each name stands for. A `kv_role` of None follows the role: prefill produces, decode consumes.
PRESETS: Mapping[str, Mapping[str, str | None]] = {
    "nixl": {"kv_connector": "NixlConnector", "kv_role": "kv_both"},
    "lmcache": {"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"},
    "mooncake": {"kv_connector": "MooncakeConnector", "kv_role": None},
    "kvbm": {
        "kv_connector": "DynamoConnector",
        "kv_connector_module_path": "kvbm.vllm_integration.connector",
        "kv_role": "kv_both",
    },
}
_NONE = ("none", "null", "")


@dataclass(frozen=True, slots=True)
class Transfer:
    """The value of the flag (None: no connector), the connector classes in it, and where the recipe says so."""

    text: str | None
    classes: frozenset[str]
    path: str


def transfer_of(recipe: Recipe, role: str) -> tuple[Transfer, list[Diagnostic]]:
    """The connector of a role: `args.kv-transfer-config`, else `args.connector`, else `engine.connector`, else NIXL for
    prefill and decode; with a finding for a name that nobody knows or a configuration that is no JSON object."""
    args = recipe.arguments[role]
    if written := args.get(FLAG):
        return _configured(written.value, written.path)
    named = args.get(NAME) or Argument(
        NAME, recipe.engine.knobs.get(NAME, None if role == "agg" else "nixl"), f"engine.{NAME}"
    )
    value = named.value
    if value is None or value is True or str(value).lower() in _NONE:
        return Transfer(None, frozenset(), named.path), []
    if isinstance(value, Mapping) or str(value).lstrip().startswith("{"):
        return _configured(value, named.path)
    preset = PRESETS.get(str(value).lower())
    if preset is None:
        message = f"`{NAME}` must be one of {', '.join(PRESETS)} or a configuration, not `{value}`"
        problem = Diagnostic("vllm/connector", message, named.path, hint=did_you_mean(str(value), PRESETS))
        return Transfer(None, frozenset(), named.path), [problem]
    # Over OpenEngine the engine tells its role, and kv_role is all that it knows of it.
    by_role = preset["kv_role"] is None or (role != "agg" and is_openengine(recipe, role))
    producer = {"kv_role": "kv_producer" if role == "prefill" else "kv_consumer"} if by_role else {}
    return _configured({**preset, **producer}, named.path)


def _configured(value: Any, path: str) -> tuple[Transfer, list[Diagnostic]]:
    text = compact_json(value) if isinstance(value, Mapping) else str(value)
    try:
        config = json.loads(text)
    except ValueError:
        config = None
    if not isinstance(config, dict) or not isinstance(config.get("kv_connector"), str):
        problem = Diagnostic(
            "vllm/kv-transfer-config",
            f"`{FLAG}` must be a mapping, or one as JSON, with a `kv_connector`",
            path,
            hint=f"usually `engine: {{type: vllm, {NAME}: nixl}}` is enough",
        )
        return Transfer(None, frozenset(), path), [problem]
    return Transfer(text, frozenset(_classes(config)), path), []


def _classes(config: Mapping[str, Any]) -> list[str]:
    """The connector and, of a MultiConnector, those inside it."""
    extra = config.get("kv_connector_extra_config")
    inner = extra.get("connectors") if isinstance(extra, Mapping) else None
    nested = [item["kv_connector"] for item in inner or () if isinstance(item, Mapping) and "kv_connector" in item]
    return [config["kv_connector"], *map(str, nested)]
