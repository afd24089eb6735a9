"""What is wrong with an input: where, why, and what to do about it.

Every layer returns lists of `Diagnostic`; nothing stops at the first. Finding is apart from printing: `cli` formats.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A place in a file: 1-based line and column, `end_column` exclusive on the same line."""

    file: str
    line: int
    column: int
    end_column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Related:
    """Another place that a finding is about: what stands there, its dotted path, and where."""

    message: str
    path: str = ""
    span: Span | None = None

    def as_dict(self) -> dict[str, Any]:
        """As JSON-ready data; absent parts are left out."""
        return {"message": self.message} | ({"path": self.path} if self.path else {}) | _place(self.span)


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding. `code` is stable (`recipe/unknown-key`), `path` dotted (`roles.agg`), `hint` says what helps.

    `related` names the other places where two together are wrong.
    """

    code: str
    message: str
    path: str = ""
    span: Span | None = None
    hint: str = ""
    severity: Severity = "error"
    related: tuple[Related, ...] = ()

    def same_places(self, other: Diagnostic) -> bool:
        """Whether both say the same kind of thing about the same recipe paths, whatever they name besides."""
        mine, others = ([d.path, *(r.path for r in d.related)] for d in (self, other))
        return bool(self.path) and self.code == other.code and mine == others

    def as_dict(self) -> dict[str, Any]:
        """The same finding as JSON-ready data; absent parts are left out, so output stays short and stable."""
        out: dict[str, Any] = {"code": self.code, "severity": self.severity, "message": self.message}
        if self.path:
            out["path"] = self.path
        out |= _place(self.span)
        if self.hint:
            out["hint"] = self.hint
        if self.related:
            out["related"] = [other.as_dict() for other in self.related]
        return out


def _place(span: Span | None) -> dict[str, Any]:
    if span is None:
        return {}
    end = {"end_column": span.end_column} if span.end_column else {}
    return {"file": span.file, "line": span.line, "column": span.column} | end


class DiagnosticError(Exception):
    """Raised at a boundary (never inside a pass that can go on collecting); carries everything found so far."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = list(diagnostics)
        super().__init__("; ".join(d.message for d in self.diagnostics if d.severity == "error"))


@dataclass(slots=True)
class Collector:
    """Gathers findings of one pass."""

    items: list[Diagnostic] = field(default_factory=list)

    def error(self, code: str, message: str, *, path: str = "", span: Span | None = None, hint: str = "") -> None:
        self.items.append(Diagnostic(code, message, path, span, hint))

    def warning(self, code: str, message: str, *, path: str = "", span: Span | None = None, hint: str = "") -> None:
        self.items.append(Diagnostic(code, message, path, span, hint, "warning"))

    @property
    def failed(self) -> bool:
        return any(d.severity == "error" for d in self.items)


def nearest(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The known word closest to `word`, `-` and `_` being the same; None when none is as like it as `cutoff` (1: equal)."""
    from difflib import get_close_matches  # slow to import, and only mistakes need it

    by_plain = {name.replace("-", "_"): name for name in sorted(set(known), reverse=True)}
    near = get_close_matches(word.replace("-", "_"), by_plain, n=1, cutoff=cutoff)
    return by_plain[near[0]] if near else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint naming the nearest known word, or the known words when none is near and they are few."""
    words = sorted(set(known))
    if near := nearest(word, words):
        return f"did you mean `{near}`?"
    return f"known here: {', '.join(words)}" if 0 < len(words) <= 12 else ""
