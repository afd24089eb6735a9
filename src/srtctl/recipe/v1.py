"""The v1 layout: which keys went where in v2, and what some of their values became.

v1 has no `schema` key and a `backend`; v2 has `schema: 2`, `engine` and `roles`. Every rule is a `Move` of one key with
all below it; `convert` applies moves to data in memory, `migrate` to the text of a file. What no rule names stays where
it is. Source: recipe.md ("v1 → v2") and the public v1 recipes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from srtctl.reading.build import KeyPath
from srtctl.reading.document import value_at

#: v1's word in `backend` for each role.
MODES = {"prefill": "prefill", "decode": "decode", "agg": "aggregated"}
ENGINE_CONFIGS = ("sglang_config", "vllm_config", "trtllm_config", "mocker_config")
DEFAULT_ENGINE = "sglang"

#: Engine flags that say only what the launcher does by itself: v1 mounted the model at /model in every container.
IDLE_FLAGS = {"model-path": ("/model", "/model/"), "host": ("0.0.0.0",)}
REQUEST_PLANE = "DYN_REQUEST_PLANE"
KV_EVENTS_FLAG = "kv-events-config"
DYNAMO_REPOSITORY = "https://github.com/ai-dynamo/dynamo.git"


@dataclass(frozen=True, slots=True)
class Move:
    """`old` (None: the key is new) becomes `new` (None: it says nothing in v2), with `value` where that is `changed`."""

    old: KeyPath | None
    new: KeyPath | None
    value: Any = None
    changed: bool = False


def is_v1(data: Any) -> bool:
    """Whether a whole recipe, without variants, is of the v1 layout."""
    if not isinstance(data, Mapping) or "schema" in data or "roles" in data or "engine" in data:
        return False
    resources = data.get("resources")
    counts = resources if isinstance(resources, Mapping) else {}
    return "backend" in data or any(old in counts for role in MODES for old, _ in _counts(role))


def moves(data: Mapping[str, Any], whole: Mapping[str, Any] | None = None, *, fragment: bool = False) -> Iterator[Move]:
    """What makes v2 of `data`, in order; rules about values of another type leave that to validation.

    In a file of variants `data` is one section, `whole` what all of them say together, and a `fragment` any but `base`.
    A list in such a section (`zip_override_*`) is converted item by item.
    """
    whole = data if whole is None else whole
    yield from _engine(data, whole, fragment)
    yield from _roles(data, fragment)
    yield from _others(data, whole)


def _engine(data: Mapping[str, Any], whole: Mapping[str, Any], fragment: bool) -> Iterator[Move]:
    backend = _table(data, "backend")
    long = any(not _has_rule(key) for key in _table(whole, "backend"))
    new: KeyPath = ("engine", "type") if long else ("engine",)
    if "type" in backend:
        yield _move(("backend", "type"), new, backend["type"], _engine_name)
    elif not fragment:
        yield Move(None, new, DEFAULT_ENGINE, changed=True)
    for key in backend:
        if not _has_rule(key):
            yield Move(("backend", key), ("engine", key))


def _has_rule(key: str) -> bool:
    """Whether a key of `backend` has a place of its own in v2; any other is a knob of the engine."""
    named = ("type", "kv_events_config", *ENGINE_CONFIGS, *(f"{mode}_environment" for mode in MODES.values()))
    return key in named


def _roles(data: Mapping[str, Any], fragment: bool) -> Iterator[Move]:
    resources, backend = _table(data, "resources"), _table(data, "backend")
    for role, mode in MODES.items():
        for old, new in _counts(role):
            if old in resources:
                change = _colocate if old == "decode_nodes" else None
                yield _move(("resources", old), ("roles", role, new), resources[old], change)
        if role == "decode" and not fragment and (gpus := _colocated_gpus(resources)):
            yield Move(None, ("roles", role, "gpus"), gpus, changed=True)
        if f"{mode}_environment" in backend:
            yield Move(("backend", f"{mode}_environment"), ("roles", role, "env"))
        for config in ENGINE_CONFIGS:
            table = _table(backend, config)
            if mode not in table:
                continue
            yield from _args(("backend", config, mode), table[mode], role)
            yield Move(("backend", config, mode), ("roles", role, "args"))
    yield from _kv_events(data)


def _args(path: KeyPath, args: Any, role: str) -> Iterator[Move]:
    """Flags that v2 has another way to say."""
    for flag, value in args.items() if isinstance(args, Mapping) else ():
        name = str(flag).replace("_", "-")
        if value in IDLE_FLAGS.get(name, ()):
            yield Move((*path, flag), None)
        elif name == KV_EVENTS_FLAG and isinstance(config := _json(value), dict):
            yield Move(None, ("roles", role, "kv_events"), True, changed=True)
            yield Move((*path, flag), (*path, flag), config, changed=True)


def _json(text: Any) -> Any:
    try:
        return json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _counts(role: str) -> tuple[tuple[str, str], ...]:
    return (f"{role}_nodes", "nodes"), (f"{role}_workers", "workers"), (f"gpus_per_{role}", "gpus")


def _colocated_gpus(resources: Mapping[str, Any]) -> int:
    """GPUs of a decode worker beside prefill, which v1 took from a prefill worker; 0 where that needs no saying."""
    if resources.get("decode_nodes") != 0 or "gpus_per_decode" in resources:
        return 0
    needed = [resources.get(key) for key in ("prefill_nodes", "gpus_per_node", "prefill_workers")]
    if type(own := resources.get("gpus_per_prefill")) is int:
        return own
    if not all(type(value) is int and value > 0 for value in needed):
        return 0
    nodes, gpus, workers = (int(value or 0) for value in needed)
    return nodes * gpus // workers


def _kv_events(data: Mapping[str, Any]) -> Iterator[Move]:
    """One mapping by mode, or one switch for every role."""
    config = _table(data, "backend").get("kv_events_config")
    if isinstance(config, Mapping):
        for role, mode in MODES.items():
            if mode in config:
                yield Move(("backend", "kv_events_config", mode), ("roles", role, "kv_events"))
    elif config is not None:
        roles = [role for role in MODES if f"{role}_nodes" in _table(data, "resources")]
        yield Move(("backend", "kv_events_config"), None)
        for role in roles:
            yield Move(None, ("roles", role, "kv_events"), config, changed=True)


def _engine_name(value: Any) -> Any:
    return DEFAULT_ENGINE if value is None else value


def _colocate(value: Any) -> Any:
    return "colocate" if type(value) is int and value == 0 else value


def _dedicated(value: Any) -> Any:
    return ("dedicated" if value else 0) if isinstance(value, bool) else value


def _placed(value: Any) -> Any:
    return 0 if value == "head" else value


def _branch(value: Any) -> Any:
    return "main" if value is True else value


#: Old key, new key, and how its value is said in v2 (None: as it is).
_RENAMED: tuple[tuple[KeyPath, KeyPath, Callable[[Any], Any] | None], ...] = (
    (("infra", "etcd_nats_dedicated_node"), ("infra", "placement", "node"), _dedicated),
    (("frontend", "orchestrator_placement"), ("frontend", "placement", "node"), _placed),
    (("frontend", "dedicated_node"), ("frontend", "placement", "node"), _dedicated),
    (("benchmark", "client_placement"), ("benchmark", "placement", "node"), _placed),
    (("benchmark", "client_dedicated_node"), ("benchmark", "placement", "node"), _dedicated),
    (("dynamo", "version"), ("dynamo", "source", "pypi"), None),
    (("dynamo", "wheel"), ("dynamo", "source", "wheel"), None),
    (("dynamo", "hash"), ("dynamo", "source", "rev"), None),
    (("dynamo", "top_of_tree"), ("dynamo", "source", "rev"), _branch),
)


def _others(data: Mapping[str, Any], whole: Mapping[str, Any]) -> Iterator[Move]:
    for old, new, change in _RENAMED:
        if old[-1] not in _table(data, str(old[0])):
            continue
        value = value_at(data, old)
        if old[-1] == "top_of_tree" and value is False:
            yield Move(old, None)
            continue
        if new[-1] == "rev":
            yield Move(None, (*new[:-1], "git"), DYNAMO_REPOSITORY, changed=True)
        yield _move(old, new, value, change)
    environments = [_table(_table(data, "backend"), f"{mode}_environment") for mode in MODES.values()]
    planes = {plane for table in environments if isinstance(plane := table.get(REQUEST_PLANE), str)}
    if len(planes) == 1 and "request_plane" not in _table(whole, "dynamo"):
        yield Move(None, ("dynamo", "request_plane"), planes.pop(), changed=True)
    if _table(data, "frontend").get("type") == "sglang" and _routed(whole):
        yield Move(("frontend", "type"), ("frontend", "type"), "sglang-router", changed=True)


def _routed(whole: Mapping[str, Any]) -> bool:
    """Whether v1's frontend `sglang` was SGLang's router: before several workers, or where it is given flags."""
    resources = _table(whole, "resources")
    several = any(resources.get(f"{role}_nodes") for role in ("prefill", "decode"))
    workers = resources.get("agg_workers", 1)
    return several or bool(_table(whole, "frontend").get("args")) or (type(workers) is int and workers > 1)


def _move(old: KeyPath, new: KeyPath, value: Any, change: Callable[[Any], Any] | None) -> Move:
    if change is None:
        return Move(old, new)
    said = [change(item) for item in value] if isinstance(value, list) else change(value)
    return Move(old, new) if said == value and type(said) is type(value) else Move(old, new, said, changed=True)


def _table(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = data.get(key)
    return found if isinstance(found, Mapping) else {}
