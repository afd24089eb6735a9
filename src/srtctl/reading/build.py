"""PyYAML's node graph to plain data, with the place of every key and value. Problems are collected, never raised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

from srtctl.diagnostics import Collector, Span
from srtctl.reading.nodes import PLAIN
from srtctl.reading.scalars import MAP, SEQ, STR, Scalar, ScalarError, plain_value, tagged_value

KeyPath = tuple[str | int, ...]

# Aliases multiply: ten lines of nested aliases can mean billions of values. No recipe comes near these.
MAX_VALUES = 200_000
MAX_DEPTH = 100


@dataclass(frozen=True, slots=True)
class Place:
    """Where one value stands, where its key stands (None in a list), and a scalar's source text (None otherwise)."""

    value: Span
    key: Span | None
    text: str | None


Pairs = dict[str, tuple[yaml.Node, yaml.Node]]


def build(root: yaml.Node, file: str, out: Collector) -> tuple[Any, dict[KeyPath, Place]]:
    """The data below `root` and the place of each path in it; a value that cannot be read is None, and reported."""
    builder = _Builder(file, out)
    return builder.value(root, (), None), builder.places


class _Builder:
    def __init__(self, file: str, out: Collector) -> None:
        self.file, self.out = file, out
        self.places: dict[KeyPath, Place] = {}
        self._pairs: dict[int, Pairs] = {}
        self._open: set[int] = set()
        self._full = False

    def value(self, node: yaml.Node, path: KeyPath, key: yaml.Node | None) -> Any:
        if len(self.places) >= MAX_VALUES:
            if not self._full:
                self._full = True
                self._error(
                    "yaml/too-large",
                    f"more than {MAX_VALUES} values",
                    node,
                    "aliases multiply what they stand for: use fewer",
                )
            return None
        text = node.value if isinstance(node, yaml.ScalarNode) else None
        self.places[path] = Place(self._span(node), self._span(key) if key else None, text)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if id(node) in self._open:
            self._error(
                "yaml/recursive", "this value contains itself through an alias", node, "remove the alias inside it"
            )
            return None
        if len(path) >= MAX_DEPTH:
            self._error("yaml/too-deep", f"nested more than {MAX_DEPTH} levels deep", node, "flatten it")
            return None
        self._open.add(id(node))
        try:
            return self._collection(node, path)
        finally:
            self._open.discard(id(node))

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        try:
            return _meaning(node)
        except ScalarError as error:
            self._error(error.code, str(error), node, error.hint)
            return None

    def _collection(self, node: yaml.Node, path: KeyPath) -> Any:
        if node.tag not in (MAP, SEQ):
            self._error(
                "yaml/tag", f"tag `{node.tag}` is not supported", node, "remove the tag and write the value plainly"
            )
            return None
        if isinstance(node, yaml.MappingNode):
            return {name: self.value(item, (*path, name), key) for name, (key, item) in self._entries(node).items()}
        return [self.value(item, (*path, index), None) for index, item in enumerate(node.value)]

    def _entries(self, node: yaml.MappingNode) -> Pairs:
        """Key text -> (key node, value node): what `<<` brings first, then the mapping's own keys, which win."""
        if id(node) in self._pairs:
            return self._pairs[id(node)]
        own: Pairs = {}
        merged: Pairs = {}
        self._pairs[id(node)] = merged  # what a mapping that merges itself sees
        for key, item in node.value:
            name = self._key(key)
            if name in own:
                first, again = own[name][0].start_mark.line + 1, key.start_mark.line + 1
                message = f"key `{name}` is given twice: first on line {first}, again on line {again}"
                self._error("yaml/duplicate-key", message, key, "remove one of the two")
            else:
                own[name] = (key, item)
        if "<<" in own and own["<<"][0].tag == PLAIN:
            for source in self._merge_sources(own.pop("<<")[1]):
                for name, pair in self._entries(source).items():
                    merged.setdefault(name, pair)
        self._pairs[id(node)] = merged | own
        return self._pairs[id(node)]

    def _merge_sources(self, node: yaml.Node) -> list[yaml.MappingNode]:
        items = node.value if isinstance(node, yaml.SequenceNode) else [node]
        sources = []
        for item in items:
            if not isinstance(item, yaml.MappingNode):
                self._error(
                    "yaml/merge", "`<<` merges mappings only", item, "give it an alias of a mapping: `<<: *name`"
                )
            elif id(item) in self._open:
                self._error("yaml/recursive", "this mapping merges itself", item, "remove the `<<` inside it")
            else:
                sources.append(item)
        return sources

    def _key(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            self._error("yaml/key-type", "a key must be text, not a list or a mapping", node, "write `key: value`")
            return f"({node.start_mark.line + 1}:{node.start_mark.column + 1})"
        text = str(node.value)
        if node.tag != STR and text != "<<" and not _is_text(node):
            self._error("yaml/key-type", f"key `{text}` is not text", node, f'quote it: "{text}"')
        return text

    def _span(self, node: yaml.Node) -> Span:
        start, end = node.start_mark, node.end_mark
        return Span(self.file, start.line + 1, start.column + 1, end.column + 1 if end.line == start.line else 0)

    def _error(self, code: str, message: str, node: yaml.Node, hint: str) -> None:
        self.out.error(code, message, span=self._span(node), hint=hint)


def _meaning(node: yaml.ScalarNode) -> Scalar:
    return plain_value(node.value) if node.tag == PLAIN else tagged_value(node.value, node.tag)


def _is_text(node: yaml.ScalarNode) -> bool:
    try:
        return isinstance(_meaning(node), str)
    except ScalarError:
        return False
