"""Strict models, and pydantic's errors as Diagnostics: in our words, with a place in the file and one hint."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

from srtctl.diagnostics import Diagnostic, nearest
from srtctl.reading.build import KeyPath
from srtctl.reading.document import YamlDocument, dotted
from srtctl.reading.fields import field_at, key_description, known_keys, owners

# What a caller knows about an unknown key beyond its neighbours (a key of an older layout): a hint, or "".
KeyHint = Callable[[KeyPath], str]


class Strict(BaseModel):
    """Frozen; unknown keys are errors; no value is converted silently (`"8"` is no number, 1 no bool)."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


def refuse(kind: str, message: str, hint: str = "") -> PydanticCustomError:
    """The error to raise in a validator. `kind` ends the code, `message` continues the value's path ("must be …")."""
    return PydanticCustomError("refused", "{message}", {"kind": kind, "message": message, "hint": hint})


def shown(value: Any) -> str:
    """`value` as YAML would write it, shortened; a list or mapping in words."""
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    text = str(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f'{text[:56]}…"'


_BOOL_WORDS = dict.fromkeys(("true", "yes", "on", "y", "1"), "true") | dict.fromkeys(
    ("false", "no", "off", "n", "0"), "false"
)


def bool_hint(value: Any) -> str:
    """What to write instead of a value that elsewhere passes for a bool (`yes`, `"false"`, 0); "" for others."""
    word = _BOOL_WORDS.get(str(value).lower()) if isinstance(value, str | int) else None
    return f"write {word}, without quotes" if word else ""


def explain_errors(
    error: ValidationError, area: str, model: type[BaseModel], document: YamlDocument, key_hint: KeyHint = lambda _: ""
) -> list[Diagnostic]:
    """A Diagnostic for each error of validating `document.data` as `model`; `area` (`recipe`) begins the codes."""
    return [_explain(item, area, model, document, key_hint) for item in error.errors(include_url=False)]


@dataclass(frozen=True, slots=True)
class _Failure:
    """One pydantic error with what is known about its place."""

    kind: str
    value: Any
    context: dict[str, Any]
    source: str
    field: FieldInfo | None
    keys: list[str]

    @property
    def about(self) -> str:
        return (self.field.description or "") if self.field else ""


def _explain(
    item: ErrorDetails, area: str, model: type[BaseModel], document: YamlDocument, key_hint: KeyHint
) -> Diagnostic:
    at_key = item["loc"][-1:] == ("[key]",)
    path = _as_written(item["loc"][:-1] if at_key else item["loc"], document.data)
    if item["type"] == "extra_forbidden":
        kind, message, hint = "unknown-key", "is not a known key", key_hint(path) or unknown_hint(model, path)
    elif at_key:
        kind, message, hint = "value", "is not a valid name", key_description(field_at(model, path[:-1]))
    else:
        source = document.text(path) or shown(item["input"])
        known = known_keys(model, path)
        failure = _Failure(item["type"], item["input"], item.get("ctx", {}), source, field_at(model, path), known)
        kind, message, hint = _words(failure, item["msg"])
    subject = f"`{dotted(path)}`" if path else f"the {area}"
    span = document.span(path, key=at_key or kind == "unknown-key")
    return Diagnostic(f"{area}/{kind}", f"{subject} {message}", dotted(path), span, hint)


def _as_written(loc: tuple[int | str, ...], data: Any) -> KeyPath:
    """The part of `loc` that the user wrote: inside a short form (`engine: sglang`) the short form itself."""
    path: KeyPath = ()
    for part in loc:
        if isinstance(data, dict):
            data = data.get(part)
        elif isinstance(data, list) and isinstance(part, int):
            data = data[part]
        else:
            break
        path = (*path, part)
    return path


def unknown_hint(model: type[BaseModel], path: KeyPath) -> str:
    """What helps whoever wrote the unknown key at `path`: where it belongs, the nearest known one, or what there is."""
    name, known = str(path[-1]), known_keys(model, path[:-1])
    if places := owners(model, name):
        return f"`{name}` belongs in " + " or ".join(f"`{place}`" for place in places)
    if near := nearest(name, known):
        return f"did you mean `{near}`?"
    return f"known here: {', '.join(known)}" if known else ""


_WANTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": "true or false",
    "string_type": "text",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}


def _words(failure: _Failure, otherwise: str) -> tuple[str, str, str]:
    """Code ending, message and hint; `otherwise` is pydantic's own message."""
    value, context, about = failure.value, failure.context, failure.about
    if failure.kind == "refused":
        return context["kind"], context["message"], context["hint"] or about
    if failure.kind in _WANTED:
        return "type", f"must be {_WANTED[failure.kind]}, not {shown(value)}", _type_hint(failure) or about
    if failure.kind == "literal_error":
        words = re.findall(r"'([^']*)'|(\d+)", context["expected"])
        choices = [text or number for text, number in words]
        near = nearest(str(value), choices)
        message = f"must be {' or '.join(f'`{choice}`' for choice in choices)}, not {shown(value)}"
        hint = f"write {near}, without quotes" if near == value else f"did you mean `{near}`?" if near else about
        return "value", message, hint
    message = {
        "missing": "is missing",
        "greater_than_equal": f"must be at least {context.get('ge')}, not {shown(value)}",
        "less_than_equal": f"must be at most {context.get('le')}, not {shown(value)}",
        "string_too_short": "must not be empty",
        "string_pattern_mismatch": f"is not valid: {shown(value)}",
    }.get(failure.kind, f"is not valid: {otherwise}")
    return "missing" if failure.kind == "missing" else "value", message, about


def _type_hint(failure: _Failure) -> str:
    value, wanted = failure.value, _WANTED[failure.kind]
    if value is None:
        optional = failure.field is not None and not failure.field.is_required()
        return "remove the line to get the default" if optional else ""
    if wanted == "true or false":
        return bool_hint(value)
    if wanted == "text" and isinstance(value, bool | int | float):
        return f'quote it: "{failure.source}"'
    if wanted == "a whole number" and isinstance(value, str) and value.replace("_", "").isdecimal():
        return f"write {value.replace('_', '')}, without quotes"
    if wanted == "a whole number" and isinstance(value, float) and value.is_integer():
        return f"write {int(value)}"
    if wanted == "a list" and isinstance(value, dict):
        return "write a list: each item begins with `- `"
    if wanted == "a mapping" and "type" in failure.keys and isinstance(value, str):
        return f"write {{type: {failure.source}}}"
    if wanted == "a mapping" and failure.keys:
        return f"its keys are {', '.join(failure.keys)}"
    if wanted == "a mapping" and isinstance(value, list):
        return "write `name: value` pairs, not a list"
    return ""
