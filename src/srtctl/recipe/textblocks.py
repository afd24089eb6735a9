"""The text of a YAML file as blocks that can be moved: each key with its value, its comments and its layout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from srtctl.reading.build import KeyPath
from srtctl.reading.describe import flow
from srtctl.reading.document import YamlDocument, value_at

STEP = 2


@dataclass(slots=True)
class Block:
    """One key. Lines are as in the file; `column` (0-based) says how far those of this block are indented there.

    `lead` are the blank and comment lines above it, `line` the line of the key without its indentation, `rest` the
    lines of its value, unless that is a mapping in block style: then it has `children`. `value` are the columns of the
    value in `line`, if it stands there as a whole.
    """

    key: str
    line: str
    column: int
    written: int
    lead: list[str] = field(default_factory=list)
    rest: list[str] = field(default_factory=list)
    children: list[Block] | None = None
    value: tuple[int, int] | None = None
    #: The first block that was taken out of this one: what inherits its comments once nothing is left.
    heir: Block | None = None

    def rename(self, key: str) -> None:
        """Give the key another name."""
        self.line = key + self.line[self.written :]
        if self.value:
            by = len(key) - self.written
            self.value = (self.value[0] + by, self.value[1] + by)
        self.key, self.written = key, len(key)

    def say(self, value: Any) -> None:
        """Give it another value, in the place of the old one."""
        if self.value:
            first, end = self.value
            self.line = f"{self.line[:first]}{flow(value)}{self.line[end:]}"
        else:
            self.line, self.rest = f"{self.line[: self.written]}: {flow(value)}", []
        self.children = None

    def indent(self, column: int) -> None:
        """Move all lines to `column`."""
        by = column - self.column
        self.lead, self.rest = (_shifted(lines, by) for lines in (self.lead, self.rest))
        self.column = column
        for child in self.children or ():
            child.indent(child.column + by)

    def lines(self) -> Iterator[str]:
        """The text, line by line."""
        yield from self.lead
        empty = self.children is not None and not self.children
        yield " " * self.column + (f"{self.line[: self.written]}: {{}}" if empty else self.line)
        yield from self.rest
        for child in self.children or ():
            yield from child.lines()


def new_table(key: str, column: int) -> Block:
    """A block of our own that is a mapping to be filled."""
    return Block(key, f"{key}:", column, len(key), children=[])


def new_value(key: str, column: int, value: Any) -> Block:
    """A block of our own that says `key: value`."""
    return Block(key, f"{key}: {flow(value)}", column, len(key))


def split(document: YamlDocument, text: str) -> list[Block]:
    """The top-level blocks of `text`, which `document` was read from."""
    lines = text.removesuffix("\n").split("\n")
    return _children(document, lines, (), 0, len(lines)) or []


def open_flow(block: Block, data: Any) -> bool:
    """Turn a mapping in flow style (`{a: 1}`) into children, without the comments inside it; whether it was one."""
    if not block.line[block.written :].lstrip(": ").startswith("{") or not isinstance(data, dict):
        return False
    after = [line for line in block.rest if not line.strip() or _comment_column(line) >= 0]
    block.line, block.rest, block.value = f"{block.line[: block.written]}:", [], None
    block.children = [new_value(key, block.column + STEP, value) for key, value in data.items()]
    block.children[-1].rest = after
    return True


def _children(document: YamlDocument, lines: Sequence[str], path: KeyPath, first: int, last: int) -> list[Block] | None:
    """The blocks of the mapping at `path`, whose lines are [first, last); None where it is not in block style."""
    data = value_at(document.data, path) if path else document.data
    if not isinstance(data, dict) or not data:
        return None
    spans = [document.span((*path, key), key=True) for key in data]
    starts = [span.line - 1 for span in spans if span]
    columns = {span.column - 1 for span in spans if span}
    if len(starts) != len(data) or len(columns) != 1 or len(set(starts)) != len(starts):
        return None
    [column] = columns
    if not all(first <= at < last and lines[at][:column].isspace() | (column == 0) for at in starts):
        return None
    order = sorted(zip(starts, data, spans, strict=True))
    leads = [first, *(_lead(lines, at, column) for at, _, _ in order[1:]), last]
    blocks = []
    for (at, key, span), lead, end in zip(order, leads, leads[1:], strict=False):
        assert span is not None
        written = span.end_column - span.column
        block = Block(str(key), lines[at][column:], column, written, list(lines[lead:at]))
        here = document.span((*path, key))
        if here and here.line - 1 == at and here.end_column:
            block.value = (here.column - 1 - column, here.end_column - 1 - column)
        below = here is not None and here.line - 1 > at and not lines[here.line - 1].lstrip().startswith("{")
        block.children = _children(document, lines, (*path, key), at + 1, end) if below else None
        block.rest = list(lines[at + 1 : end]) if block.children is None else []
        blocks.append(block)
    return blocks


def _lead(lines: Sequence[str], at: int, column: int) -> int:
    """The first line of the comments that belong to the key on line `at`: those right above it that are not deeper."""
    first = at
    while first > 0 and (not lines[first - 1].strip() or _comment_column(lines[first - 1]) in range(column + 1)):
        first -= 1
    return first


def _comment_column(line: str) -> int:
    bare = line.lstrip()
    return len(line) - len(bare) if bare.startswith("#") else -1


def _shifted(lines: Sequence[str], by: int) -> list[str]:
    if by >= 0:
        return [" " * by + line if line.strip() else line for line in lines]
    return [line[min(-by, len(line) - len(line.lstrip())) :] for line in lines]
