"""The short forms a recipe may use: `sidecar: true`, `engine: sglang`, `checks: false`.

Each function takes what the user wrote and gives the long form that the model validates. What has no long form it
refuses (`validation.refuse`) in words of its own: pydantic's errors about unions name every branch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from srtctl.reading.types import FlagTable
from srtctl.reading.validation import bool_hint, refuse, shown


def switch(value: Any) -> Any:
    """true → an empty mapping (all defaults), false → None; a mapping or None stays."""
    if isinstance(value, bool):
        return {} if value else None
    if value is None or isinstance(value, Mapping | BaseModel):
        return value
    raise refuse("type", f"must be true, false or a mapping, not {shown(value)}", bool_hint(value))


def engine(value: Any) -> Any:
    """`sglang` → `{type: sglang}`; a mapping stays."""
    return {"type": value} if isinstance(value, str) else value


def check_setting(value: Any) -> Any:
    """true, false, `warn` or `fail` → `{enabled, on_failure}`; a mapping stays."""
    if isinstance(value, bool):
        return {"enabled": value}
    if value in ("warn", "fail"):
        return {"on_failure": value}
    if isinstance(value, Mapping | BaseModel):
        return value
    message = f"must be true, false, `warn`, `fail` or a mapping of on_failure and timeout, not {shown(value)}"
    raise refuse("value", message, bool_hint(value))


#: In the order they run: the first layer that fails is the one that is named.
CHECK_NAMES = (
    "placement",
    "capabilities",
    "registration",
    "rank_routing",
    "direct_dispatch",
    "publishers",
    "kv_events",
    "cache_reuse",
    "transfer",
    "load",
)


def checks(value: Any) -> Any:
    """false → every check off, true → every check on; a mapping stays."""
    if isinstance(value, bool):
        return dict.fromkeys(CHECK_NAMES, value)
    if isinstance(value, Mapping | BaseModel):
        return value
    raise refuse("type", f"must be false, or a mapping of check names, not {shown(value)}", bool_hint(value))


def _nodes(value: Any) -> Any:
    if value == "colocate" or (type(value) is int and value >= 1):
        return value
    if isinstance(value, str) and value.isdecimal():
        hint = f"remove the quotes: {value}"
    elif value == 0:
        hint = "a role without nodes of its own is `colocate` (decode only); a role that is not wanted is left out"
    else:
        hint = "nodes is what all workers of the role take together"
    raise refuse("value", f"must be a whole number of at least 1, or `colocate`, not {shown(value)}", hint)


Nodes = Annotated[
    int | Literal["colocate"],
    BeforeValidator(_nodes, json_schema_input_type=Annotated[int, Field(ge=1)] | Literal["colocate"]),
]


def _placed(value: Any) -> Any:
    if value == "dedicated" or (type(value) is int and value >= 0):
        return value
    hint = f"remove the quotes: {value}" if isinstance(value, str) and value.isdecimal() else "nodes count from 0"
    raise refuse("value", f"must be a whole number of at least 0, or `dedicated`, not {shown(value)}", hint)


PlacedNode = Annotated[
    int | Literal["dedicated"],
    BeforeValidator(_placed, json_schema_input_type=Annotated[int, Field(ge=0)] | Literal["dedicated"]),
]


def _flags_or_words(value: Any) -> Any:
    if not isinstance(value, Mapping | list):
        raise refuse("type", f"must be a mapping of flags, or a list of words, not {shown(value)}")
    if odd := [word for word in value if not isinstance(word, str)]:
        raise refuse("type", f"must be a list of words, but holds {shown(odd[0])}", "quote each word that is not text")
    return value


SidecarArgs = Annotated[
    dict[str, Any] | list[str], BeforeValidator(_flags_or_words, json_schema_input_type=FlagTable | list[str])
]


WorkerNumber = Annotated[int, Field(ge=0)]


def workers_or_all(value: Any) -> Any:
    """true, false or None stay, and a list of worker numbers."""
    if value is None or isinstance(value, bool):
        return value
    if not isinstance(value, list):
        raise refuse("type", f"must be true, false or a list of worker numbers, not {shown(value)}", bool_hint(value))
    for number in value:
        if type(number) is not int or number < 0:
            raise refuse("value", f"must hold worker numbers, not {shown(number)}", "workers count from 0: [0, 1]")
        if value.count(number) > 1:
            raise refuse("value", f"names worker {number} twice", "name each worker once")
    return value


def with_sidecar_defaults(data: Any) -> Any:
    """Fill `roles.*.sidecar` from `dynamo.sidecar`, `sidecar_args` and its other defaults; `data` is not changed.

    A role's mapping of args is laid over the default mapping; a list, on either side, replaces. A default that is
    itself wrong is not copied, so that it is reported once, where it stands.
    """
    if not isinstance(data, Mapping) or not isinstance(data.get("dynamo"), Mapping):
        return data
    if not isinstance(data.get("roles"), Mapping):
        return data
    roles = {
        name: {**role, "sidecar": _sidecar(role.get("sidecar"), data["dynamo"])} if isinstance(role, Mapping) else role
        for name, role in data["roles"].items()
    }
    return {**data, "roles": roles}


def _sidecar(own: Any, dynamo: Mapping[str, Any]) -> Any:
    if own is None and isinstance(dynamo.get("sidecar"), bool):
        own = dynamo["sidecar"]
    if own is True:
        own = {}
    if not isinstance(own, Mapping):
        return own
    filled = dict(own)
    timeout = dynamo.get("sidecar_startup_timeout")
    if type(timeout) is int and timeout >= 1:
        filled.setdefault("startup_timeout", timeout)
    binary = dynamo.get("sidecar_binary")
    if isinstance(binary, str) and binary:
        filled.setdefault("binary", binary)
    try:
        default = _flags_or_words(dynamo.get("sidecar_args", {}))
    except PydanticCustomError:
        return filled
    args = filled.setdefault("args", default)
    if isinstance(args, Mapping) and isinstance(default, Mapping):
        own_flags = {name.replace("_", "-") for name in args}
        inherited = {name: value for name, value in default.items() if name.replace("_", "-") not in own_flags}
        filled["args"] = {**inherited, **args}
    return filled
