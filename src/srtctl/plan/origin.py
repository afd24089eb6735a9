"""Where the value of a recipe key comes from: the recipe, an option, another key, the cluster profile, or its default."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

from srtctl.diagnostics import Span
from srtctl.reading.build import KeyPath
from srtctl.reading.document import YamlDocument, dotted, value_at

CLUSTER = "cluster"


@dataclass(frozen=True, slots=True)
class Fallback:
    """Keys that apply, in this order, where `pattern` is not set; `tables` are laid over one another instead."""

    pattern: str
    places: tuple[str, ...]
    tables: bool = False


# What `recipe.inputs` (sidecar defaults), `plan.site` (recipe over profile) and the job (environment) do.
FALLBACKS: tuple[Fallback, ...] = (
    Fallback("resources.gpus_per_node", ("cluster.gpus_per_node",)),
    Fallback("slurm.account", ("cluster.default_account",)),
    Fallback("slurm.partition", ("cluster.default_partition",)),
    Fallback("slurm.time_limit", ("cluster.default_time_limit",)),
    Fallback("sbatch_directives", ("cluster.default_sbatch_directives",), tables=True),
    Fallback("environment", ("cluster.env",), tables=True),
    Fallback("roles.*.env", ("environment", "cluster.env"), tables=True),
    Fallback("frontend.env", ("environment", "cluster.env"), tables=True),
    Fallback("roles.*.sidecar", ("dynamo.sidecar",)),
    Fallback("roles.*.sidecar.args", ("dynamo.sidecar_args",), tables=True),
    Fallback("roles.*.sidecar.startup_timeout", ("dynamo.sidecar_startup_timeout",)),
)

Effect = Literal["applies", "laid under", "unused"]


@dataclass(frozen=True, slots=True)
class Setting:
    """One place that sets a key: the place's dotted path, the value, where it stands, and what comes of it."""

    path: str
    value: Any
    text: str
    span: Span
    effect: Effect

    def as_dict(self) -> dict[str, Any]:
        """As JSON-ready data."""
        place = {"file": self.span.file, "line": self.span.line, "column": self.span.column}
        return {"path": self.path, "value": self.value, **place, "effect": self.effect}


def settings(field: str, recipe: YamlDocument | None, profile: YamlDocument | None) -> list[Setting]:
    """Every place that sets `field`, the one that applies first; empty when its default holds.

    `recipe` (with its overrides) and `profile` are as written: neither needs to be valid. null sets nothing, but for an
    entry of a table. A short form above the key counts as the place that sets it: `sidecar: false` in any case,
    `sidecar: true`, which means the defaults, where nothing else does.
    """
    found: list[Setting] = []
    weak: list[Setting] = []
    for place, tables in _places(field):
        document = profile if place.startswith(f"{CLUSTER}.") else recipe
        if document is None:
            continue
        full = document.find(place.removeprefix(f"{CLUSTER}."))
        path = _short_form(document, full)
        value, span = value_at(document.data, path), document.span(path)
        if path not in document.places or span is None or (value is None and not _is_entry(place)):
            continue
        effect: Effect = "applies" if not found else "laid under" if tables and _tables(found, value) else "unused"
        name = f"{CLUSTER}.{dotted(path)}" if document is profile else dotted(path)
        setting = Setting(name, value, document.text(path) or "", span, effect)
        (weak if path != full and value is not False else found).append(setting)
    return found or weak[:1]


def fits(path: KeyPath, pattern: str) -> bool:
    """Whether `path` is what the dotted `pattern` (`*` within one level) describes."""
    words = pattern.split(".") if pattern else []
    return len(path) == len(words) and all(fnmatchcase(str(part), word) for part, word in zip(path, words, strict=True))


def _places(field: str) -> list[tuple[str, bool]]:
    """The key itself and what it falls back to; for an entry of a table, the same entry there."""
    path: KeyPath = tuple(field.split("."))
    for row in FALLBACKS:
        depth = row.pattern.count(".") + 1
        if fits(path, row.pattern):
            return [(field, row.tables), *((place, row.tables) for place in row.places)]
        if row.tables and fits(path[:depth], row.pattern):
            return [(field, False), *((f"{place}.{dotted(path[depth:])}", False) for place in row.places)]
    return [(field, False)]


def _is_entry(place: str) -> bool:
    path: KeyPath = tuple(place.split("."))
    tables = [name for row in FALLBACKS if row.tables for name in (row.pattern, *row.places)]
    return any(fits(path[:-1], pattern) for pattern in (*tables, "roles.*.args", "frontend.args"))


def _short_form(document: YamlDocument, path: KeyPath) -> KeyPath:
    """The nearest key above `path` that is written as one scalar, else `path` itself."""
    for depth in range(len(path) - 1, 0, -1):
        above = path[:depth]
        if above in document.places and isinstance(value_at(document.data, above), bool | str | int):
            return above
    return path


def _tables(found: list[Setting], value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(item.value, dict) for item in found)
