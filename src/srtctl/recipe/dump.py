"""A loaded recipe back to YAML: what a bundle keeps as `recipe.yaml`."""

from __future__ import annotations

import re
from typing import Any

import yaml

from srtctl.reading.scalars import FLOAT, INT, STR
from srtctl.recipe.model import Recipe, Role


class _Dumper(yaml.SafeDumper):
    """Quotes also what is text to PyYAML's YAML 1.1 rules but a number to ours (`1e5`, `0o17`, `08`)."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    # PyYAML writes these line breaks of YAML 1.1 as they are into single quotes, where they read back as blanks.
    odd = any(c in value for c in "\x85\u2028\u2029")
    style = '"' if odd else "|" if value.strip().count("\n") else None
    return dumper.represent_scalar(STR, value, style=style)


_Dumper.add_representer(str, _text)

for _tag, _pattern, _first in (
    (FLOAT, r"[-+]?(?:\.[0-9]+|[0-9]+\.?[0-9]*)(?:[eE][-+]?[0-9]+)?$", "-+.0123456789"),
    (INT, r"0o[0-7]+$", "0"),
):
    _Dumper.add_implicit_resolver(_tag, re.compile(_pattern), list(_first))


def dump_resolved(recipe: Recipe) -> str:
    """The recipe as resolved: layout v2, keys in the model's order, no key that only says its default.

    Reading it back gives an equal recipe: overrides and sidecar defaults are in it.
    """
    data = recipe.model_dump(by_alias=True, exclude_defaults=True)
    if not recipe.engine.knobs:
        data["engine"] = recipe.engine.type
    for name, role in recipe.roles.items():
        data["roles"][name] |= _short_forms(role, data["roles"][name], recipe.dynamo.sidecar)
    order = [field.alias or name for name, field in Recipe.model_fields.items()]
    data = {key: data[key] for key in order if key in data}
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10**9)


def _short_forms(role: Role, dumped: dict[str, Any], sidecar_default: bool | None) -> dict[str, Any]:
    """`kv_events` and `sidecar` as a user writes them: true for all defaults, false against a default of true."""
    short: dict[str, Any] = {}
    for key in ("kv_events", "sidecar"):
        if key in dumped:
            short[key] = dumped[key] or True
    if role.sidecar is None and sidecar_default:
        short["sidecar"] = False
    return short
