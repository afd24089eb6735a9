"""Plan to plain data and back. plan.json is the contract other tools read; this module is its only reader and writer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from srtctl.diagnostics import Diagnostic, DiagnosticError, Span
from srtctl.plan.integrity import problems
from srtctl.plan.model import PLAN_VERSION, Plan

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from pydantic_core import ErrorDetails

#: A plan written by something else can be wrong in every value; the first findings say enough.
SHOWN = 10


def plan_dict(plan: Plan) -> dict[str, Any]:
    """plan.json, version 1 (docs/architecture.md), as dicts and lists."""
    data: dict[str, Any] = _plain(plan)
    return data


def plan_json(plan: Plan) -> str:
    """plan.json, byte-equal for equal plans."""
    return data_json({name: getattr(plan, name) for name in _names(Plan)} | {"warnings": _plain(plan.warnings)})


def data_json(data: Mapping[str, Any]) -> str:
    """Indented JSON of data and dataclasses, with a newline at its end: what `json.dumps` gives, in a tenth of the time."""
    from pydantic_core import to_json

    return to_json(data, indent=2).decode() + "\n"


def is_saved_plan(text: str, file: str) -> bool:
    """Whether `text` is meant to be a saved plan: a JSON object with `workers`, or a `.json` file that is no JSON.

    A recipe may be written as JSON too; it has `roles`, never `workers`, at the top.
    """
    if not text.lstrip().startswith("{"):
        return False
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return file.endswith(".json")
    return "workers" in data


def read_plan(text: str, file: str) -> Plan:
    """The plan that `plan_json` wrote, equal to the original. Raises DiagnosticError for anything else."""
    data = _object(text, file)
    if data.get("version") != PLAN_VERSION:
        message = f"{file} is a plan of version {data.get('version')!r}; this srtctl reads version {PLAN_VERSION}"
        raise DiagnosticError([Diagnostic("plan/version", message, hint="plan the recipe again")])
    plan = _validated(data, file)
    if (again := plan_dict(plan)) != data:
        raise DiagnosticError(_shown(file, list(_differences(data, again))))
    if wrong := problems(plan):
        raise DiagnosticError(_shown(file, wrong))
    return plan


@cache
def adapter() -> TypeAdapter[Plan]:
    """Validates, and describes as JSON Schema, the shape of a plan."""
    from pydantic import TypeAdapter

    return TypeAdapter(Plan)


def _object(text: str, file: str) -> dict[str, Any]:
    hint = "save one with `srtctl plan RECIPE -o json`"
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        message = f"{file} is no complete JSON, so no saved plan: {error.msg}"
        span = Span(file, error.lineno, error.colno)
        raise DiagnosticError([Diagnostic("plan/json", message, span=span, hint=hint)]) from None
    except RecursionError:
        raise DiagnosticError([Diagnostic("plan/json", f"{file} is nested too deeply for a plan", hint=hint)]) from None
    if not isinstance(data, dict) or "workers" not in data:
        raise DiagnosticError([Diagnostic("plan/json", f"{file} is not a saved plan", hint=hint)])
    return data


def _validated(data: dict[str, Any], file: str) -> Plan:
    from pydantic import ValidationError

    try:
        # Strict, so that nothing is converted silently; as JSON, because strict Python values would have to be tuples.
        shape = data | {"warnings": [_diagnostic_fields(w) for w in data.get("warnings", ())]}
        return adapter().validate_json(json.dumps(shape), strict=True)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False)
        found = [Diagnostic("plan/value", _words(e), ".".join(map(str, e["loc"]))) for e in details]
    except (TypeError, AttributeError):
        found = [Diagnostic("plan/value", "is no list of diagnostics", "warnings")]
    raise DiagnosticError(_shown(file, found)) from None


def _words(error: ErrorDetails) -> str:
    """pydantic's `Input should be a valid integer` as what follows the name of a value."""
    if error["type"] == "missing":
        return "is missing"
    words = error["msg"]
    return words.replace("Input should", "should", 1) if words.startswith("Input") else words[:1].lower() + words[1:]


def _shown(file: str, found: list[Diagnostic]) -> list[Diagnostic]:
    """Each finding with the file and its path in the sentence; the hint, common to all, on the last."""
    shown = [replace(d, message=f"{file}: {f'`{d.path}` ' if d.path else ''}{d.message}") for d in found[:SHOWN]]
    if (more := len(found) - SHOWN) > 0:
        shown.append(Diagnostic("plan/value", f"{file}: and {more} more like these"))
    hint = "a saved plan is submitted as it stands: undo the edit, or plan the recipe again"
    return [*shown[:-1], replace(shown[-1], hint=hint)]


def _differences(data: Any, again: Any, path: str = "") -> Iterator[Diagnostic]:
    """Where what was read differs from what this version would write."""
    if isinstance(data, dict) and isinstance(again, dict):
        for key in sorted(data.keys() | again.keys()):
            inner = f"{path}.{key}" if path else key
            if key not in data:
                yield Diagnostic("plan/value", "is missing", inner)
            elif key not in again:
                yield Diagnostic("plan/value", "is not known to this srtctl", inner)
            else:
                yield from _differences(data[key], again[key], inner)
    elif isinstance(data, list) and isinstance(again, list):
        for index, (one, other) in enumerate(zip(data, again, strict=True)):
            yield from _differences(one, other, f"{path}.{index}")
    elif data != again:
        yield Diagnostic("plan/value", f"would be read as {again!r}", path)


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


def _diagnostic_fields(data: dict[str, Any]) -> dict[str, Any]:
    """The fields of the Diagnostic, or Related, whose `as_dict` gave `data`."""
    rest = dict(data)
    place = {key: rest.pop(key) for key in _names(Span) if key in rest}
    if place:
        rest["span"] = place
    if "related" in rest:
        rest["related"] = [_diagnostic_fields(other) for other in rest["related"]]
    return rest
