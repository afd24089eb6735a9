"""A v1 recipe's text in the v2 layout: comments, key order and the user's way of writing stay.

Moves the text of each key as `v1.moves` says, then reads the result again: it must mean exactly what the original does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from srtctl.diagnostics import Diagnostic
from srtctl.reading.build import KeyPath
from srtctl.reading.document import YamlDocument, dotted, parse_yaml, value_at
from srtctl.recipe.convert import as_v2
from srtctl.recipe.textblocks import STEP, Block, new_table, new_value, open_flow, split
from srtctl.recipe.v1 import Move, is_v1, moves
from srtctl.recipe.variants import BASE, expand, has_variants


@dataclass(frozen=True, slots=True)
class Migrated:
    """The text in the v2 layout, or None with the reasons; it is the one given where that is v2 already."""

    text: str | None
    diagnostics: tuple[Diagnostic, ...]


def migrate(text: str, file: str) -> Migrated:
    """`text` of the recipe `file` in the v2 layout."""
    document = parse_yaml(text, file)
    if document.diagnostics:
        return Migrated(None, document.diagnostics)
    sections = _sections(document)
    whole = _whole(document)
    if not is_v1(whole):
        return Migrated(text, ())
    blocks = split(document, text)
    try:
        for path in sections:
            data = value_at(document.data, path) if path else document.data
            _Section(blocks, path, data).apply(moves(data, whole, fragment=path not in ((), (BASE,))))
    except _UnmovableError as error:
        return Migrated(None, (_unmovable(document, error.path),))
    _add_schema(blocks)
    lines = [line for block in blocks for line in block.lines()]
    result = "\n".join(lines) + "\n" * text.endswith("\n")
    if _meaning(parse_yaml(result, file)) != _meaning(document):
        return Migrated(None, (_unmovable(document, ()),))
    return Migrated(result, ())


class _UnmovableError(Exception):
    def __init__(self, path: KeyPath) -> None:
        super().__init__(dotted(path))
        self.path = path


def _unmovable(document: YamlDocument, path: KeyPath) -> Diagnostic:
    where = f"`{dotted(path)}`" if path else "the recipe"
    message = f"{where} is written in a way that cannot be moved as text"
    span = document.span(path, key=True)
    hint = "write out its anchors, aliases and merge keys (`&`, `*`, `<<`) and mappings in braces first"
    return Diagnostic("migrate/text", message, dotted(path), span, hint)


def _sections(document: YamlDocument) -> list[KeyPath]:
    """The mappings to move keys in: the document's own, or each section of a file of variants."""
    if not has_variants(document.data):
        return [()]
    return [(key,) for key, value in document.data.items() if isinstance(value, dict)]


def _whole(document: YamlDocument) -> Any:
    """What the recipes of the file say together: which rules apply is asked of this."""
    data = document.data
    if not has_variants(data):
        return data
    return (
        reduce(_over, (value for value in data.values() if isinstance(value, Mapping)), {})
        if "schema" not in data
        else data
    )


def _over(below: Any, above: Any) -> Any:
    if isinstance(below, Mapping) and isinstance(above, Mapping):
        return {**below, **{key: _over(below.get(key), value) for key, value in above.items()}}
    return below if above is None else above


def _meaning(document: YamlDocument) -> list[tuple[str, Any]]:
    """Every recipe of the file as v2 data; `base` too, which stands alone only where it is asked for."""
    found = expand(document) + (expand(document, BASE) if has_variants(document.data) else [])
    return [(item.name, as_v2(item.document).data) for item in found]


def _add_schema(blocks: list[Block]) -> None:
    """`schema: 2` as the first key, below the comment that heads the file."""
    first = blocks[0]
    last_blank = max((index for index, line in enumerate(first.lead) if not line.strip()), default=len(first.lead) - 1)
    schema = new_value("schema", first.column, 2)
    schema.lead, first.lead = first.lead[: last_blank + 1], first.lead[last_blank + 1 :]
    blocks.insert(0, schema)


class _Section:
    """One mapping of the file while its keys move."""

    def __init__(self, blocks: list[Block], path: KeyPath, data: Mapping[str, Any]) -> None:
        self._data = data
        self._top = blocks
        for part in path:
            found = _child(self._top, part)
            if found is None or found.children is None:
                raise _UnmovableError(path)
            self._top = found.children
        self._column = self._top[0].column if self._top else 0
        self._taken_from: dict[str, None] = {}

    def apply(self, todo: Iterator[Move]) -> None:
        for move in list(todo):
            block = self._take(move.old, keep=move.new is not None) if move.old else None
            if move.new is None:
                continue
            if block is None:
                block = new_value(str(move.new[-1]), 0, move.value)
            else:
                block.rename(str(move.new[-1]))
                if move.changed:
                    block.say(move.value)
            self._put(move.new, block, beside=str(move.old[0]) if move.old else "backend")
        for key in {**self._taken_from, "backend": None}:
            self._prune(key)

    def _take(self, path: KeyPath, *, keep: bool) -> Block:
        """The block at `path`, removed. One that is not kept leaves its comments to the next."""
        holders: list[Block] = []
        level = self._top
        for depth, part in enumerate(path[:-1], 1):
            holder = self._at(level, part, path)
            if holder.children is None and not open_flow(holder, value_at(self._data, path[:depth])):
                raise _UnmovableError(path[:depth])
            holders.append(holder)
            level = holder.children or []
        found = self._at(level, path[-1], path)
        index = level.index(found)
        del level[index]
        if not keep and index < len(level):
            level[index].lead[:0] = found.lead
        for holder in holders:
            holder.heir = holder.heir or (found if keep else None)
        self._taken_from[str(path[0])] = None
        return found

    def _at(self, level: list[Block], key: Any, path: KeyPath) -> Block:
        found = _child(level, key)
        if found is None:
            raise _UnmovableError(path)
        return found

    def _put(self, path: KeyPath, block: Block, *, beside: str) -> None:
        """Put it at `path`; `beside` is the top-level key that it comes from."""
        level, column = self._top, self._column
        for depth, part in enumerate(path):
            found = _child(level, part)
            if found is None:
                found = block if depth == len(path) - 1 else new_table(str(part), column)
                found.indent(column)
                if depth == 0:
                    self._insert(found, beside)
                else:
                    level.append(found)
            elif depth == len(path) - 1:
                level[level.index(found)] = block
                block.indent(column)
            elif found.children is None and not open_flow(found, value_at(self._data, path[: depth + 1])):
                raise _UnmovableError(path[: depth + 1])
            level = found.children if found.children is not None else []
            column = level[0].column if level else found.column + STEP

    def _insert(self, block: Block, beside: str) -> None:
        """A new top-level key: where `backend` stands, whose comments become those of the first, else after `beside`."""
        keys = [block.key for block in self._top]
        if "backend" in keys:
            at = keys.index("backend")
            self._top[at].heir = self._top[at].heir or block
        else:
            at = keys.index(beside) + 1 if beside in keys else len(keys)
        self._top.insert(at, block)

    def _prune(self, key: str) -> None:
        """Remove what holds nothing any more; its comments go to what was taken out of it first."""
        block = _child(self._top, key)
        if block is None or not _is_empty(block):
            return
        for holder in _empties(block):
            _, mark, comment = holder.line.partition("#")
            lead = [*holder.lead, *([f"{' ' * holder.column}#{comment}"] if mark else [])]
            if holder.heir is not None:
                old = Block("", "", holder.column, 0, lead)
                old.indent(holder.heir.column)
                holder.heir.lead[:0] = old.lead
        self._top.remove(block)


def _child(blocks: list[Block], key: Any) -> Block | None:
    return next((block for block in blocks if block.key == key), None)


def _is_empty(block: Block) -> bool:
    if block.children is None:
        bare = block.line[block.written :].partition("#")[0].strip()
        return bare in (":", ": {}", ":{}", ": null") and not any(line.strip() for line in block.rest)
    return all(map(_is_empty, block.children))


def _empties(block: Block) -> Iterator[Block]:
    """Innermost first, so that the comments of what is outside come first."""
    for child in reversed(block.children or []):
        yield from _empties(child)
    yield block
