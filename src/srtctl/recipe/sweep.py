"""`sweep:`: one recipe for every combination of its values, which stand where the recipe says `{name}`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

from srtctl.diagnostics import Diagnostic
from srtctl.reading.build import KeyPath
from srtctl.reading.document import YamlDocument

#: More combinations than anybody means to run.
MAX_COMBINATIONS = 1000

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, slots=True)
class Written:
    """One recipe as a file writes it. `name` is "" for the only one; `group` the key that it comes from."""

    name: str
    group: str
    document: YamlDocument


def with_found(document: YamlDocument, found: Sequence[Diagnostic]) -> YamlDocument:
    """`document` with further diagnostics."""
    return replace(document, diagnostics=(*document.diagnostics, *found))


def swept(section: Written) -> list[Written]:
    """Every combination of the values below `sweep`; the section itself where it sweeps nothing.

    The name of a recipe that does not name its combination gets it at the end. A value that nothing uses is a warning,
    and makes no combinations.
    """
    document = section.document
    if not isinstance(document.data, dict) or "sweep" not in document.data:
        return [section]
    sweep = document.data["sweep"]
    rest = replace(document, data={key: value for key, value in document.data.items() if key != "sweep"})
    if not isinstance(sweep, dict) or not sweep or any(value in ([], {}, None) for value in sweep.values()):
        return [
            replace(
                section,
                document=with_found(
                    rest,
                    [
                        _wrong(
                            document,
                            "`sweep` must be a mapping of names to lists of values",
                            "for example `tp: [1, 2]`",
                        )
                    ],
                ),
            )
        ]
    used = {name for text in _texts(rest.data) for name in _PLACEHOLDER.findall(text)}
    rest = with_found(rest, [_unused(document, name) for name in sweep if name not in used])
    values = {name: _choices(name, value, document) for name, value in sweep.items() if name in used}
    if (total := prod(map(len, values.values()))) > MAX_COMBINATIONS:
        message = f"`sweep` has {total} combinations, more than {MAX_COMBINATIONS}"
        return [replace(section, document=with_found(rest, [_wrong(document, message, "sweep less at a time")]))]
    varying = [name for name, choices in values.items() if len(choices) > 1]
    return [
        _filled(section, rest, dict(zip(values, picks, strict=True)), varying) for picks in product(*values.values())
    ]


@dataclass(frozen=True, slots=True)
class _Choice:
    """One value of a sweep and how it is written."""

    value: Any
    text: str


def _choices(name: str, value: Any, document: YamlDocument) -> list[_Choice]:
    def choice(item: Any, path: KeyPath) -> _Choice:
        text = document.text(path)
        return _Choice(item, str(item) if text is None else text)

    if isinstance(value, list):
        return [choice(item, ("sweep", name, index)) for index, item in enumerate(value)]
    return [choice(value, ("sweep", name))]


def _wrong(document: YamlDocument, message: str, hint: str) -> Diagnostic:
    return Diagnostic("variants/sweep", message, "sweep", document.span(("sweep",), key=True), hint)


def _unused(document: YamlDocument, name: str) -> Diagnostic:
    message = f"`sweep.{name}` changes nothing: `{{{name}}}` stands nowhere in the recipe"
    span = document.span(("sweep", name), key=True)
    return Diagnostic("variants/sweep-unused", message, f"sweep.{name}", span, "use it, or remove it", "warning")


def _texts(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict | list):
        for value in data.values() if isinstance(data, dict) else data:
            yield from _texts(value)


def _filled(section: Written, rest: YamlDocument, chosen: Mapping[str, _Choice], varying: Sequence[str]) -> Written:
    """One combination. A placeholder alone takes the value with its type; inside a text it becomes text."""
    places = dict(rest.places)

    def fill(data: Any, path: KeyPath) -> Any:
        if isinstance(data, dict):
            return {key: fill(value, (*path, key)) for key, value in data.items()}
        if isinstance(data, list):
            return [fill(value, (*path, index)) for index, value in enumerate(data)]
        if not isinstance(data, str) or "{" not in data:
            return data
        if (alone := _PLACEHOLDER.fullmatch(data)) and alone[1] in chosen:
            if path in places:
                places[path] = replace(places[path], text=chosen[alone[1]].text)
            return chosen[alone[1]].value
        return _PLACEHOLDER.sub(lambda match: chosen[match[1]].text if match[1] in chosen else match[0], data)

    data = fill(rest.data, ())
    name = data.get("name")
    if isinstance(name, str) and name == rest.data["name"]:
        data["name"] = "_".join([name, *(_plain(f"{key}{chosen[key].text}") for key in varying)])
    label = ",".join(f"{key}={chosen[key].text}" for key in varying)
    variant = f"{section.name}:{label}" if section.name and label else section.name or label
    return Written(variant, section.group, replace(rest, data=data, places=places))


def _plain(text: str) -> str:
    """`text` in characters that a run name may have."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", text)
