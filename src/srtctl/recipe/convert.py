"""A v1 recipe read as v2: the same document with its data moved, every value still knowing its place in the file."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from srtctl.diagnostics import Diagnostic, did_you_mean
from srtctl.reading.build import KeyPath, Place
from srtctl.reading.document import YamlDocument, dotted, value_at
from srtctl.reading.validation import shown
from srtctl.recipe.v1 import MODES, Move, is_v1, moves


def as_v2(document: YamlDocument) -> YamlDocument:
    """`document` in the v2 layout: itself, unless its data is of the v1 layout. What `backend` holds beyond v1 is a finding."""
    if not is_v1(document.data):
        return document
    out = _Converted(document)
    for move in moves(document.data):
        out.apply(move)
    found = list(_left_over(document, out.data.get("backend")))
    if "backend" in out.data:
        out.take(("backend",))
    document = replace(document, diagnostics=(*document.diagnostics, *found))
    return replace(document, data={"schema": 2, **out.data}, places=out.places)


def _left_over(document: YamlDocument, backend: Any) -> Iterator[Diagnostic]:
    """A finding for what stands in `backend` where v1 had nothing; an empty table says nothing."""
    if backend is not None and not isinstance(backend, dict):
        span = document.span(("backend",))
        yield Diagnostic("recipe/type", f"`backend` must be a mapping, not {shown(backend)}", "backend", span)
    for table, value in backend.items() if isinstance(backend, dict) else ():
        for key in value if isinstance(value, dict) else ():
            path = ("backend", table, key)
            message, hint = f"`{dotted(path)}` is not a known key", did_you_mean(key, MODES.values())
            yield Diagnostic("recipe/unknown-key", message, dotted(path), document.span(path, key=True), hint)


class _Converted:
    """The data while it changes. A key that v1 did not have stands where what led to it stood."""

    def __init__(self, document: YamlDocument) -> None:
        self.data: dict[str, Any] = copy.deepcopy(document.data)
        self.places = dict(document.places)

    def apply(self, move: Move) -> None:
        if move.old is None:
            if move.new is not None:
                self._put(move.new, move.value, {})
            return
        value, places = self.take(move.old)
        if move.new is not None:
            if move.changed:
                value, places = move.value, {below: place for below, place in places.items() if not below}
            self._put(move.new, value, places)

    def take(self, path: KeyPath) -> tuple[Any, dict[KeyPath, Place]]:
        """What stands at `path`, removed, with its places from there on; a table that it leaves empty goes with it."""
        value = value_at(self.data, path[:-1]).pop(path[-1])
        found = {at[len(path) :]: place for at, place in self.places.items() if at[: len(path)] == path}
        for below in found:
            del self.places[(*path, *below)]
        if len(path) > 1 and path[0] != "backend" and not value_at(self.data, path[:-1]):
            self.take(path[:-1])
        return value, found

    def _put(self, path: KeyPath, value: Any, places: dict[KeyPath, Place]) -> None:
        table: dict[Any, Any] = self.data
        for depth, part in enumerate(path[:-1], 1):
            if not isinstance(table.get(part), dict):
                table[part] = {}
            if () in places:
                self.places.setdefault(path[:depth], places[()])
            table = table[part]
        table[path[-1]] = value
        self.places |= {(*path, *below): place for below, place in places.items()}
