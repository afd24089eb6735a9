"""Write docs/compatibility.md: what becomes of each key of the public recipes (`python scripts/write_compatibility.py CORPUS`)."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from srtctl.benchmarks import BENCHMARKS
from srtctl.reading.build import KeyPath
from srtctl.reading.document import YamlDocument, dotted, matches, read_yaml
from srtctl.reading.fields import field_at
from srtctl.recipe.convert import as_v2
from srtctl.recipe.known import NOT_BUILT, NotBuilt
from srtctl.recipe.model import Recipe
from srtctl.recipe.variants import KEYS, expand

FILE = Path(__file__).parent.parent / "docs" / "compatibility.md"

SUPPORTED, IDLE = "supported", "says what is so anyway, and is left out"

_REFUSED_ENGINES = {value for row in NOT_BUILT if row.pattern == "engine" for value in row.values}

#: Tables whose keys are the user's own.
_FREE = ("args", "env", "environment", "frameworks", "sbatch_directives", "srun_options")
#: Settings that no public benchmark tool has.
_LOST = {
    f"benchmark.{setting}": reason
    for engines in BENCHMARKS.values()
    for kind in engines.values()
    for setting, reason in kind.lost.items()
}

_HEAD = """\
# Compatibility with the public v1 recipes

Written by `scripts/write_compatibility.py` from {files} recipe files; a test keeps it true. Each key is read in its v1
place and means what stands under *in v2*. What is refused is refused by name, and with `--allow-unsupported` left out
with a warning. Engine flags and environment variables are passed on as they are, and are one row a table here.

| v1 key | in v2 | files | |
|---|---|---:|---|
"""


@dataclass
class _Row:
    places: Counter[str] = field(default_factory=Counter)
    files: set[str] = field(default_factory=set)
    refused: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    built: bool = False


def compatibility_text(corpus: Path) -> str:
    """The page, for the recipes below `corpus`."""
    rows: dict[str, _Row] = defaultdict(_Row)
    files = sorted(corpus.rglob("*.yaml"))
    for path in files:
        document = read_yaml(path)
        for key in KEYS:
            for _ in matches(document.data, key):
                rows[key].files.add(str(path))
                rows[key].places[key] += 1
                rows[key].built = True
        for variant in expand(document)[:1]:
            _note(rows, variant.document, str(path))
    body = (
        f"| `{key}` | {_place(key, row)} | {len(row.files)} | {_state(row)} |\n" for key, row in sorted(rows.items())
    )
    return _HEAD.format(files=len(files)) + "".join(body)


def _note(rows: Mapping[str, _Row], old: YamlDocument, file: str) -> None:
    """One recipe: its keys are followed by their places, which a conversion keeps."""
    new = as_v2(old)
    after = {id(place.key): path for path, place in new.places.items() if place.key}
    reasons = dict(_reasons(new))
    for path, place in old.places.items():
        key = _name(old, path) if place.key and path[:1] != ("sweep",) else None
        if key is None:
            continue
        row = rows[key]
        row.files.add(file)
        there = after.get(id(place.key))
        if there is None:
            continue
        row.places[_v2_name(there)] += 1
        if path[0] == "backend" and str(path[1]).removesuffix("_config") in _REFUSED_ENGINES:
            row.refused["goes with `engine.type`"] |= set()
            continue
        found = [(reason, value) for at, (reason, value) in reasons.items() if there[: len(at)] == at]
        for reason, value in found[:1]:
            row.refused[reason].update({value} if value else set())
        row.built = row.built or not found


def _name(document: YamlDocument, path: KeyPath) -> str | None:
    """The v1 key of a row; None for what is below a free table, and for a table of keys that have rows of their own."""
    if not path or any(isinstance(part, int) for part in path):
        return None
    first, last = path[0], str(path[-1])
    if first == "backend" and len(path) > 1 and str(path[1]).endswith("_environment"):
        return f"backend.{path[1]}.*" if len(path) == 3 else None
    if first == "backend" and len(path) > 1 and str(path[1]).endswith("_config") and path[1] != "kv_events_config":
        return f"backend.{path[1]}.{path[2]}.*" if len(path) == 4 else None
    if any(part in _FREE for part in path[:-1]):
        return f"{dotted(path[:-1])}.*"
    value = _at(document.data, path)
    return None if isinstance(value, dict) and value else dotted((*path[:-1], last))


def _at(data: Any, path: KeyPath) -> Any:
    for part in path:
        data = data[part]
    return data


def _v2_name(path: KeyPath) -> str:
    """The place in v2, free tables as one."""
    for depth in range(1, len(path)):
        if path[depth - 1] in _FREE:
            return f"{dotted(path[:depth])}.*"
    return dotted(path)


def _reasons(document: YamlDocument) -> Iterator[tuple[KeyPath, tuple[str, str]]]:
    """What is not built, by path, with its reason and the value where that is what is not built."""
    for row in NOT_BUILT:
        for path, value in matches(document.data, row.pattern):
            if not row.applies(value):
                continue
            yield path, (row.reason, _shown(row, value))
            if row.drop:
                yield tuple(row.drop.split(".")), (f"goes with `{row.pattern}`", "")


def _shown(row: NotBuilt, value: Any) -> str:
    return str(value).lower() if row.values and isinstance(value, bool) else str(value) if row.values else ""


def _place(key: str, row: _Row) -> str:
    places = [place for place in sorted(row.places) if place != key]
    return ", ".join(f"`{place}`" for place in places) if places else "the same" if row.places else "-"


def _state(row: _Row) -> str:
    if not row.places:
        return IDLE
    if row.built and (reason := next((_LOST[place] for place in row.places if place in _LOST), "")):
        return f"left out with a warning ({reason})"
    parts = [SUPPORTED] if row.built else []
    for reason, values in sorted(row.refused.items()):
        named = ", ".join(f"`{value}`" for value in sorted(values))
        parts.append(f"refused{f': {named}' if named else ''} ({reason})")
    return "; ".join(parts)


def unknown_keys(text: str) -> list[str]:
    """The keys in a page that are said to be supported, but that no v2 recipe may have."""
    found = []
    for line in text.splitlines():
        cells = [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        if len(cells) != 4 or not cells[3].startswith(SUPPORTED) or cells[0] in KEYS:
            continue
        for place in (cells[0] if cells[1] == "the same" else cells[1]).split(", "):
            path = tuple(place.strip("`").removesuffix(".*").split("."))
            if field_at(Recipe, path) is None and path[:1] != ("engine",):
                found.append(place)
    return found


if __name__ == "__main__":
    FILE.write_text(compatibility_text(Path(sys.argv[1])))
