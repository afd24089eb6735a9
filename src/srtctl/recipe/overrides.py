"""`--set a.b=value` and `--unset a.b`: changes to a recipe's data before it is validated, each with its own place."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from srtctl.diagnostics import Diagnostic, Span, did_you_mean
from srtctl.reading.build import KeyPath, Place
from srtctl.reading.document import YamlDocument, dotted, parse_yaml, value_at
from srtctl.reading.validation import shown


def apply_overrides(document: YamlDocument, sets: Sequence[str], unsets: Sequence[str]) -> YamlDocument:
    """`document` with each `unset` path removed, then each `path=value` set, in the order given; problems are added.

    The value is one YAML scalar or flow collection; nothing after `=` is null. A set path need not exist: mappings on
    its way are made. The span of what was set has the option itself as its file (`--set roles.agg.workers=2`).
    """
    for path in unsets:
        document = _unset(document, path)
    for option in sets:
        document = _set(document, option)
    return document


def _set(document: YamlDocument, option: str) -> YamlDocument:
    name, equals, text = option.partition("=")
    file = f"--set {option}"
    at = Span(file, 1, 1, len(name) + 1)
    if not equals or not name:
        return _with(
            document,
            Diagnostic(
                "override/syntax", f"`{option}` is no `path=value`", span=at, hint="for example roles.agg.workers=2"
            ),
        )
    # Blanks in place of the path, so that columns are those of the option.
    value = parse_yaml(" " * (len(name) + 1) + text, file)
    if not text.strip():
        place = Place(Span(file, 1, len(option) + 1), None, "")
        value = YamlDocument(file, None, {(): place})
    if value.diagnostics:
        document = _with(document, *value.diagnostics)
    if not value.read:
        return document
    path, data = document.find(name), copy.deepcopy(document.data)
    if problem := _store(data, path, value.data):
        return _with(
            document, Diagnostic("override/path", problem, name, at, "set its parent as a whole, or another path")
        )
    places = _without(document, path)
    for parent in (path[:depth] for depth in range(1, len(path))):
        places.setdefault(parent, Place(at, at, None))
    places |= {(*path, *below): replace(place, key=place.key if below else at) for below, place in value.places.items()}
    return replace(document, data=data, places=places)


def _unset(document: YamlDocument, name: str) -> YamlDocument:
    path, data = document.find(name), copy.deepcopy(document.data)
    parent = value_at(data, path[:-1])
    here = isinstance(parent, dict) and path and path[-1] in parent
    if not here:
        known = did_you_mean(str(path[-1]), parent) if isinstance(parent, dict) and path else ""
        known = known or "what is not written there has its default"
        at = Span(f"--unset {name}", 1, 1, len(name) + 1)
        return _with(document, Diagnostic("override/path", f"`{name}` is not in {document.file}", name, at, known))
    del parent[path[-1]]
    return replace(document, data=data, places=_without(document, path))


def _store(data: Any, path: KeyPath, value: Any) -> str:
    """Put `value` at `path` in `data`; what is wrong with the path, or ""."""
    for depth, part in enumerate(path):
        last = depth == len(path) - 1
        if isinstance(data, dict):
            # true is the short form of a mapping of defaults (`sidecar: true`), so it may be gone into.
            if last or data.get(part) is None or data[part] is True:
                data[part] = value if last else {}
            data = data[part]
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            if last:
                data[part] = value
            data = data[part]
        else:
            return f"`{dotted(path[:depth])}` is {shown(data)}: `{part}` cannot be set in it"
    return ""


def _without(document: YamlDocument, path: KeyPath) -> dict[KeyPath, Place]:
    return {at: place for at, place in document.places.items() if at[: len(path)] != path}


def _with(document: YamlDocument, *found: Diagnostic) -> YamlDocument:
    return replace(document, diagnostics=(*document.diagnostics, *found))
