"""Printing diagnostics: for people, as JSON, and as annotations of a GitHub workflow."""

from __future__ import annotations

import json
import os
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal, TextIO

from srtctl.diagnostics import Diagnostic, Span

Format = Literal["text", "json", "github"]

# A line of source is shown in a window of this many columns around what it is about.
WINDOW = 110
_STYLES = {"error": "1;31", "warning": "1;33", "place": "1", "hint": "36"}


def print_diagnostics(
    diagnostics: Iterable[Diagnostic], *, color: bool | None = None, stream: TextIO | None = None, fmt: Format = "text"
) -> None:
    """Write `diagnostics` to `stream` (default stderr) in file order; JSON is one list, also when it is empty.

    `color` None means: on a terminal, unless NO_COLOR is set or TERM is dumb.
    """
    stream = stream or sys.stderr
    found = in_order(diagnostics)
    if color is None:
        color = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    if fmt == "json":
        text = json.dumps([item.as_dict() for item in found], indent=2, ensure_ascii=False) + "\n"
    elif fmt == "github":
        text = "".join(_github(item) + "\n" for item in found)
    else:
        text = format_text(found, color=color)
    stream.write(text)


def in_order(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """By file, line and column; then what is about an option of the command line, last what has no place."""

    def place(item: Diagnostic) -> tuple[bool, bool, Span]:
        return item.span is None, item.span is not None and _is_option(item.span), item.span or Span("", 0, 0)

    return sorted(diagnostics, key=place)


def format_text(diagnostics: Sequence[Diagnostic], *, color: bool) -> str:
    """Each finding with its source line, a caret and its hint, then a line that counts them; "" for none."""
    if not diagnostics:
        return ""
    paint: Callable[[str, str], str] = (lambda style, text: f"\x1b[{_STYLES[style]}m{text}\x1b[0m") if color else _plain
    sources: dict[str, list[str]] = {}
    blocks = [_block(item, paint, sources) for item in diagnostics]
    return "\n".join(blocks) + f"\n{summary(diagnostics)}\n"


def summary(diagnostics: Sequence[Diagnostic]) -> str:
    """`2 errors, 1 warning`."""
    counts = [(sum(item.severity == kind for item in diagnostics), kind) for kind in ("error", "warning")]
    return ", ".join(f"{count} {kind}{'' if count == 1 else 's'}" for count, kind in counts if count)


def _plain(_style: str, text: str) -> str:
    return text


def _block(item: Diagnostic, paint: Callable[[str, str], str], sources: dict[str, list[str]]) -> str:
    place = paint("place", f"{place_text(item.span)}: ") if item.span else ""
    lines = [f"{place}{paint(item.severity, f'{item.severity}[{item.code}]')}: {_printable(item.message)}"]
    lines += _excerpt(item.span, item.severity, paint, sources)
    for other in item.related:
        place = paint("place", f"{place_text(other.span)}: ") if other.span else ""
        lines.append(f"  {paint('hint', 'see:')} {place}{_printable(other.message)}")
        lines += _excerpt(other.span, "hint", paint, sources)
    if item.hint:
        lines.append(f"  {paint('hint', 'hint:')} {_printable(item.hint)}")
    return "\n".join(lines)


def _excerpt(
    span: Span | None, style: str, paint: Callable[[str, str], str], sources: dict[str, list[str]]
) -> list[str]:
    """The source line of a place and its marks; nothing where there is no source."""
    if span is None or not (source := _source_line(span, sources)):
        return []
    shown, mark = _window(source, span)
    return [f"    {shown}", f"    {paint(style, mark)}"]


def place_text(span: Span) -> str:
    """`file:line:column`; an option of the command line (`--set a=b`) stands for itself."""
    return _printable(span.file if _is_option(span) else str(span))


def _is_option(span: Span) -> bool:
    return span.file.startswith("--")


def _source_line(span: Span, sources: dict[str, list[str]]) -> str:
    if _is_option(span):
        return span.file.partition(" ")[2]
    if span.file not in sources:
        try:
            sources[span.file] = Path(span.file).read_text(encoding="utf-8-sig", errors="replace").splitlines()
        except OSError:
            sources[span.file] = []
    lines = sources[span.file]
    return lines[span.line - 1] if 0 < span.line <= len(lines) else ""


def _window(source: str, span: Span) -> tuple[str, str]:
    """The part of `source` around the span, and a line of blanks and `^` that marks it; columns by display width."""
    start = min(span.column - 1, len(source))
    end = max(start + 1, min(span.end_column - 1, len(source)))
    first = 0 if end <= WINDOW else max(0, min(start - WINDOW // 4, len(source) - WINDOW))
    last = first + WINDOW
    left, right = ("…" if first else ""), ("…" if last < len(source) else "")
    before, marked = source[first:start], source[start : min(end, last)]
    shown = left + source[first:last] + right
    return _printable(shown), " " * (len(left) + _width(before)) + "^" * max(1, _width(marked))


def _width(text: str) -> int:
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _printable(text: str) -> str:
    """`text` without control characters: what stands in a file must not steer the terminal."""
    return "".join(c if c.isprintable() else " " if c in "\t\n" else "\N{REPLACEMENT CHARACTER}" for c in text)


def _github(item: Diagnostic) -> str:
    """A workflow command (GitHub, "Workflow commands": `::error file=…,line=…,title=…::message`)."""
    facts = {"title": item.code}
    if item.span and not _is_option(item.span):
        file = Path(item.span.file)
        local = file.relative_to(Path.cwd()) if file.is_absolute() and file.is_relative_to(Path.cwd()) else file
        facts = {"file": str(local), "line": str(item.span.line), "col": str(item.span.column)} | facts
        if item.span.end_column:
            facts["endColumn"] = str(item.span.end_column)
    see = "".join(
        f"\nsee: {f'{place_text(other.span)}: ' if other.span else ''}{other.message}" for other in item.related
    )
    message = item.message + see + (f"\nhint: {item.hint}" if item.hint else "")
    listed = ",".join(f"{key}={_escape(value).replace(':', '%3A').replace(',', '%2C')}" for key, value in facts.items())
    return f"::{item.severity} {listed}::{_escape(message)}"


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
