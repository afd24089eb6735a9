"""One file, many recipes: `base` with `override_*` and `zip_override_*`, and `sweep:`. Works on data of either layout.

Source of the rules: recipe.md ("Variants") and the documentation of the public recipes' launcher.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from srtctl.diagnostics import Diagnostic
from srtctl.reading.build import KeyPath, Place
from srtctl.reading.document import YamlDocument, dotted
from srtctl.reading.validation import shown
from srtctl.recipe.sweep import Written, swept, with_found

BASE = "base"
#: The keys that make several recipes of one file, and what each does.
KEYS = {
    BASE: "What the variants of this file share: a recipe. `file.yaml:base` selects it.",
    "override_*": "A variant: laid over `base`; mappings merge, lists replace, null deletes.",
    "zip_override_*": "Variants, as many as its lists are long: the i-th takes the i-th item of each list.",
    "sweep": "Variants, one for each combination of its lists; `{name}` elsewhere stands for the value of `name`.",
}
PATTERNS = ("override_*", "zip_override_*")


def split_selector(recipe: Path | str) -> tuple[Path, str]:
    """`file.yaml:name` as file and name; the name is "" without one. A file that is called so itself is that file."""
    path = Path(recipe)
    before, colon, selector = str(recipe).rpartition(":")
    if path.exists() or not colon or not before or "/" in selector:
        return path, ""
    return Path(before), selector


def has_variants(data: Any) -> bool:
    """Whether `data` is a file of several sections, rather than a recipe."""
    return isinstance(data, Mapping) and any(key == BASE or _is_section(key) for key in data)


def expand(document: YamlDocument, select: str = "") -> list[Written]:
    """The recipes that `document` holds, in its order: all but `base`, or those that `select` names.

    `select` is a variant (`override_x`, `zip_override_x[0]`, `base`, `tp=2,ep=1`), a section with several, or a pattern
    of shell wildcards. What is wrong with the variants as such is in the documents' diagnostics; a selector that names
    nothing gives an empty list.
    """
    sections = _sections(document) if has_variants(document.data) else [Written("", "", document)]
    every = [variant for section in sections for variant in swept(section)]
    if not select:
        chosen = [variant for variant in every if variant.group != BASE]
        return chosen or every
    exact = [variant for variant in every if select in (variant.name, variant.group)]
    return exact or [v for v in every if v.group != BASE and fnmatchcase(v.name, select)]


def _is_section(key: str) -> bool:
    return any(fnmatchcase(key, pattern) for pattern in PATTERNS)


def _sections(document: YamlDocument) -> list[Written]:
    """`base` and each override of it."""
    data = document.data
    found = list(_odd_keys(document))
    base = _below(document, (BASE,))
    if not isinstance(base.data, dict):
        return [Written(BASE, BASE, replace(document, data={}, diagnostics=(*document.diagnostics, *found)))]
    base = replace(base, diagnostics=(*document.diagnostics, *found))
    if "schema" in data and "schema" not in base.data:
        base = _merged(base, _Part({"schema": data["schema"]}, {("schema",): document.places[("schema",)]}))
    sections = [Written(BASE, BASE, base)]
    for key in data:
        if not _is_section(key) or not isinstance(data[key], dict):
            continue
        part = _below(document, (key,))
        if key.startswith("override_"):
            named = _named(_merged(base, _Part(part.data, part.places)), part.data, key.removeprefix("override_"))
            sections.append(Written(key, key, named))
            continue
        slices, problems = _zipped(part, key)
        for index, piece in enumerate(slices):
            suffix = f"{key.removeprefix('zip_override_')}_{index}"
            whole = _named(_merged(base, piece), piece.data, suffix)
            sections.append(Written(f"{key}[{index}]", key, with_found(whole, problems)))
    return sections


def _odd_keys(document: YamlDocument) -> Iterator[Diagnostic]:
    data = document.data
    if not isinstance(data.get(BASE), dict):
        first = next(key for key in data if key == BASE or _is_section(key))
        message = (
            f"`{first}` has no `base` to change"
            if BASE not in data
            else f"`base` must be a mapping, not {shown(data[BASE])}"
        )
        yield Diagnostic(
            "variants/base",
            message,
            first,
            document.span((first,), key=True),
            "put what all variants share below `base:`",
        )
    for key in data:
        at = document.span((key,), key=True)
        if _is_section(key) and not isinstance(data[key], dict):
            message = f"`{key}` must be a mapping of what differs from `base`, not {shown(data[key])}"
            yield Diagnostic("variants/section", message, key, at, "remove it, or say what differs")
        elif key not in (BASE, "schema") and not _is_section(key):
            hint = "in a file of variants everything stands below `base`, `override_*` or `zip_override_*`"
            yield Diagnostic("variants/section", f"`{key}` stands beside `base`", key, at, hint)


@dataclass(frozen=True, slots=True)
class _Part:
    data: Any
    places: Mapping[KeyPath, Place]


def _below(document: YamlDocument, path: KeyPath) -> YamlDocument:
    """The part of the document at `path`, as one of its own."""
    size = len(path)
    places = {at[size:]: place for at, place in document.places.items() if at[:size] == path}
    return replace(document, data=document.data.get(path[0]), places=places)


def _named(document: YamlDocument, own: Mapping[str, Any], suffix: str) -> YamlDocument:
    """With the suffix at its name, unless the section gives one."""
    name = document.data.get("name")
    if "name" in own or not isinstance(name, str):
        return document
    return replace(document, data={**document.data, "name": f"{name}_{suffix}"})


def _merged(base: YamlDocument, part: _Part) -> YamlDocument:
    """`part` laid over `base`: mappings merge, null deletes, anything else replaces."""
    places = dict(base.places)

    def over(below: Any, above: Any, path: KeyPath) -> Any:
        if not isinstance(above, dict):
            gone = len(path)
            for at in [at for at in places if at[:gone] == path]:
                del places[at]
            places.update({at: place for at, place in part.places.items() if at[:gone] == path})
            return above
        out = dict(below) if isinstance(below, dict) else {}
        if not isinstance(below, dict) and path in part.places:
            places[path] = part.places[path]
        for key, value in above.items():
            if value is None:
                out.pop(key, None)
                for at in [at for at in places if at[: len(path) + 1] == (*path, key)]:
                    del places[at]
            else:
                out[key] = over(out.get(key), value, (*path, key))
        return out

    return replace(base, data=over(base.data, part.data, ()), places=places)


def _zipped(section: YamlDocument, key: str) -> tuple[list[_Part], list[Diagnostic]]:
    """The variants of one `zip_override_*` section: the i-th takes the i-th item of every list, or the only one."""
    lists = [(path, value) for path, value in _leaves(section.data, ()) if isinstance(value, list)]
    long = [(path, value) for path, value in lists if len(value) != 1]
    count = len(long[0][1]) if long else 1
    found = [
        Diagnostic(
            "variants/zip",
            f"`{key}.{dotted(path)}` has {len(value)} values, but `{key}.{dotted(long[0][0])}` has {count}",
            f"{key}.{dotted(path)}",
            section.span(path),
            "give each list one value a variant, or a single one for all; a list as a value is written `[[a, b]]`",
        )
        for path, value in long
        if len(value) != count
    ]
    return [_slice(section, dict(lists), index) for index in range(0 if found and not count else max(count, 1))], found


def _leaves(data: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    if isinstance(data, dict):
        for key, value in data.items():
            yield from _leaves(value, (*path, key))
    else:
        yield path, data


def _slice(section: YamlDocument, lists: Mapping[KeyPath, list[Any]], index: int) -> _Part:
    places: dict[KeyPath, Place] = {}
    picked = {path: index if index < len(items) else len(items) - 1 for path, items in lists.items()}

    def cut(data: Any, path: KeyPath) -> Any:
        if path in picked:
            return data[picked[path]] if data else None
        return {key: cut(value, (*path, key)) for key, value in data.items()} if isinstance(data, dict) else data

    for at, place in section.places.items():
        cuts = (at[:depth] for depth in range(len(at)))
        path = next((path for path in cuts if path in picked), None)
        if path is None:
            places.setdefault(at, place)
        elif at[len(path)] == picked[path]:
            below = at[len(path) + 1 :]
            places[(*path, *below)] = replace(place, key=section.places[path].key) if not below else place
    return _Part(cut(section.data, ()), places)
