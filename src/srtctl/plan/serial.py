"""Plan to plain data and back. plan.json is the contract other tools read; this module is its only reader and writer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from srtctl.diagnostics import Diagnostic, DiagnosticError, Span
from srtctl.plan.model import PLAN_VERSION, Plan

if TYPE_CHECKING:
    from pydantic import TypeAdapter


def plan_dict(plan: Plan) -> dict[str, Any]:
    """plan.json, version 1 (docs/architecture.md), as dicts and lists."""
    data: dict[str, Any] = _plain(plan)
    return data


def plan_json(plan: Plan) -> str:
    """plan.json, byte-equal for equal plans."""
    return json.dumps(plan_dict(plan), indent=2, ensure_ascii=False) + "\n"


def read_plan(text: str, file: str) -> Plan:
    """The plan that `plan_json` wrote, equal to the original. Raises DiagnosticError for anything else."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        span = Span(file, error.lineno, error.colno)
        raise DiagnosticError([Diagnostic("plan/json", f"not JSON: {error.msg}", span=span)]) from None
    if not isinstance(data, dict) or "workers" not in data:
        hint = "save one with `srtctl plan RECIPE -o json`"
        raise DiagnosticError([Diagnostic("plan/json", f"{file} is not a saved plan", hint=hint)])
    if data.get("version") != PLAN_VERSION:
        message = f"{file} is a plan of version {data.get('version')!r}; this srtctl reads version {PLAN_VERSION}"
        raise DiagnosticError([Diagnostic("plan/version", message, hint="plan the recipe again")])
    from pydantic import ValidationError

    try:
        plan = adapter().validate_python(data | {"warnings": [_diagnostic(w) for w in data.get("warnings", ())]})
    except (ValidationError, TypeError) as error:
        details = error.errors() if isinstance(error, ValidationError) else [{"loc": ("warnings",), "msg": str(error)}]
        found = [Diagnostic("plan/value", f"{file}: {e['msg']}", ".".join(map(str, e["loc"]))) for e in details]
        raise DiagnosticError(found) from None
    if plan_dict(plan) != data:
        message = f"{file} holds something that this srtctl would not run as it stands"
        raise DiagnosticError([Diagnostic("plan/unknown", message, hint="plan the recipe again with this version")])
    return plan


@cache
def adapter() -> TypeAdapter[Plan]:
    """Validates, and describes as JSON Schema, the shape of a plan."""
    from pydantic import TypeAdapter

    return TypeAdapter(Plan)


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind))


def _plain(value: Any) -> Any:
    if isinstance(value, str | int | float | None):
        return value
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, Diagnostic):
        return value.as_dict()
    if is_dataclass(value):
        kind: type = type(value)
        return {name: _plain(getattr(value, name)) for name in _names(kind)}
    raise TypeError(f"a plan cannot hold {type(value).__name__}")


def _diagnostic(data: dict[str, Any]) -> Diagnostic:
    """The inverse of `Diagnostic.as_dict`."""
    rest = dict(data)
    place = [rest.pop(key, None) for key in ("file", "line", "column")]
    span = Span(*place) if place[0] else None
    return Diagnostic(**rest, span=span)
