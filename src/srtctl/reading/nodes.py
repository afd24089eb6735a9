"""YAML text to PyYAML's node graph, by libyaml where there is one; its syntax errors in words a user can act on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml
from yaml.composer import Composer
from yaml.parser import Parser
from yaml.reader import Reader, ReaderError
from yaml.scanner import Scanner

from srtctl.diagnostics import Diagnostic, Span
from srtctl.reading.scalars import MAP, SEQ, STR

# Our tag for an untagged plain scalar: only such a scalar goes through `scalars.plain_value`.
PLAIN = "plain"


class _Tags:
    """Stands in for PyYAML's resolver: notes how a scalar was written and leaves its meaning to `scalars`."""

    def resolve(self, kind: type[yaml.Node], _value: Any, implicit: Any) -> str:
        if kind is yaml.ScalarNode:
            return PLAIN if implicit[0] else STR
        return MAP if kind is yaml.MappingNode else SEQ

    def descend_resolver(self, node: Any, index: Any) -> None:
        pass

    def ascend_resolver(self) -> None:
        pass


class PureComposer(_Tags, Reader, Scanner, Parser, Composer):
    """Composes with PyYAML's Python parser (about 10 times slower)."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)


if TYPE_CHECKING:
    FastComposer = PureComposer
else:
    try:
        from yaml.cyaml import CParser
    except ImportError:  # PyYAML built without libyaml
        FastComposer = PureComposer
    else:

        class FastComposer(_Tags, CParser):
            """Composes with libyaml."""

            def __init__(self, text):
                CParser.__init__(self, text)


def compose(text: str, composer: type[PureComposer] = FastComposer) -> yaml.Node | None:
    """The root node of the one document in `text`, None if there is none. Raises yaml.YAMLError or RecursionError."""
    node: yaml.Node | None = composer(text).get_single_node()
    return node


_SYNTAX = "yaml/syntax"
_INDENT = "check its indentation against the lines above"
_MISPLACED = "this line does not fit the block it stands in"

# Part of the parser's problem (libyaml and PyYAML word some of them differently) -> code, message ("" keeps it), hint.
_PROBLEMS: tuple[tuple[str, str, str, str], ...] = (
    ("another document", "yaml/multiple-documents", "a second document starts here", "remove the `---`: one a file"),
    ("undefined alias", "yaml/alias", "", "define it before its use: `&name` on the value, then `*name`"),
    ("second occurrence", "yaml/alias", "this anchor is defined twice", "give the second one another name"),
    ("tab character", _SYNTAX, "a tab in the indentation", "indent with spaces"),
    ("mapping values", _SYNTAX, "a `:` is not allowed here", "quote a value that holds `: `, or check the indentation"),
    ("expected ':'", _SYNTAX, "this line is no `key: value`", "put `: ` after the key, or check the indentation"),
    ("expected key", _SYNTAX, _MISPLACED, _INDENT),
    ("expected <block end>", _SYNTAX, _MISPLACED, _INDENT),
    ("expected '-' indicator", _SYNTAX, "a list item was expected here", _INDENT),
    (
        "',' or ']'",
        _SYNTAX,
        "the list{opened} is not closed here",
        "close it with `]`, or put `,` between items",
    ),
    (
        "',' or '}'",
        _SYNTAX,
        "the mapping{opened} is not closed here",
        "close it with `}`, or put `,` between keys",
    ),
    ("node content", _SYNTAX, "a value was expected here", "write the value, or quote it"),
    ("unexpected end of stream", _SYNTAX, "the quote opened here is never closed", "close the quote"),
    ("escape character", _SYNTAX, "", "use single quotes where a backslash is meant literally"),
    ("nesting depth", "yaml/too-deep", "nested too deeply", "flatten it"),
)


def explain(error: yaml.YAMLError | RecursionError, text: str, file: str) -> Diagnostic:
    """What stopped the parser, where, and what to do about it."""
    if isinstance(error, RecursionError):
        return Diagnostic("yaml/too-deep", "nested too deeply", span=Span(file, 1, 1), hint="flatten it")
    if isinstance(error, ReaderError):
        before = text[: error.position]
        span = Span(file, before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)
        message = f"character U+{ord(text[error.position]):04X} is not allowed in YAML"
        return Diagnostic(
            "yaml/syntax", message, span=span, hint="remove it, or write it as an escape in double quotes"
        )
    if not isinstance(error, yaml.MarkedYAMLError):
        return Diagnostic("yaml/syntax", str(error), span=Span(file, 1, 1))
    return _explain_marked(error, text, file)


def _explain_marked(error: yaml.MarkedYAMLError, text: str, file: str) -> Diagnostic:
    problem, lines = error.problem or str(error), text.splitlines()
    mark = error.problem_mark or error.context_mark
    if error.context_mark and (mark is None or mark.line >= len(lines)):
        mark = error.context_mark  # found at the end of the file: where it began says more
    span = Span(file, mark.line + 1, mark.column + 1) if mark else Span(file, 1, 1)
    if "cannot start any token" in problem:
        character = lines[span.line - 1][span.column - 1]
        if character == "\t":
            return Diagnostic(_SYNTAX, "a tab in the indentation", span=span, hint="indent with spaces")
        return Diagnostic(_SYNTAX, f"a plain value cannot start with `{character}`", span=span, hint="quote the value")
    for part, code, message, hint in _PROBLEMS:
        if part in problem:
            opened = f", opened on line {error.context_mark.line + 1}," if error.context_mark else ""
            return Diagnostic(code, message.format(opened=opened) or problem, span=span, hint=hint)
    return Diagnostic(_SYNTAX, problem, span=span)
