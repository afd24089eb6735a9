"""Reads one YAML file into plain data that still knows where each key and value stood.

`read_yaml` never raises: whatever is wrong with the file is a Diagnostic, all of it at once (a syntax error ends the
reading, so there is at most one). Scalars follow YAML 1.2 (`scalars`), keys are text, anchors, aliases and merge keys
(`<<`) work, a key given twice in one mapping is an error.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from srtctl.diagnostics import Collector, Diagnostic, Span
from srtctl.reading.build import KeyPath, Place, build
from srtctl.reading.nodes import compose, explain


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """Plain data (dict with text keys, list, str, int, float, bool, None) and the place of everything in it.

    `read` is False when nothing could be read; then `data` is None and `diagnostics` says why.
    """

    file: str
    data: Any = None
    places: Mapping[KeyPath, Place] = field(default_factory=dict, repr=False)
    diagnostics: tuple[Diagnostic, ...] = ()

    @property
    def read(self) -> bool:
        return bool(self.places)

    def span(self, path: KeyPath = (), *, key: bool = False) -> Span | None:
        """Where the value at `path` stands, or its key; a path that is not in the file gives the nearest parent's key.

        A value reached through an alias or merge key stands where the anchor was written. None if nothing was read.
        """
        place = self.places.get(path)
        if place:
            return place.key if key and place.key else place.value
        while path:
            path = path[:-1]
            if place := self.places.get(path):
                return place.key or place.value
        return None

    def text(self, path: KeyPath) -> str | None:
        """The scalar at `path` as it was written (`1.50`, `0x10`); None for a mapping, a list or an unknown path."""
        place = self.places.get(path)
        return place.text if place else None

    def find(self, dotted: str) -> KeyPath:
        """The path that `dotted` (`roles.agg.args.tp-size`, `services.0.name`) means in this data.

        A key that itself holds a dot is found where it exists; what does not exist is split at each dot.
        """
        return tuple(_steps(self.data, dotted.split("."))) if dotted else ()


def read_yaml(path: Path | str) -> YamlDocument:
    """Read the file at `path`; see YamlDocument for what comes back."""
    path = Path(path)
    try:
        return parse_yaml(path.read_bytes().decode("utf-8-sig"), str(path))
    except FileNotFoundError:
        found = Diagnostic("yaml/not-found", f"{path} does not exist", hint="check the path")
    except IsADirectoryError:
        found = Diagnostic("yaml/not-readable", f"{path} is a folder, not a file", hint="name a file in it")
    except OSError as error:
        found = Diagnostic(
            "yaml/not-readable", f"{path} cannot be read: {error.strerror}", hint="check the path and its permissions"
        )
    except UnicodeDecodeError as error:
        before = bytes(error.object[: error.start])
        span = Span(str(path), before.count(b"\n") + 1, len(before) - before.rfind(b"\n"))
        message = f"not UTF-8 text: byte 0x{error.object[error.start]:02x}"
        found = Diagnostic("yaml/encoding", message, span=span, hint="save the file as UTF-8")
    return YamlDocument(str(path), diagnostics=(found,))


def parse_yaml(text: str, file: str) -> YamlDocument:
    """Read YAML from `text`; `file` is the name that spans carry."""
    out = Collector()
    try:
        node = compose(text)
        if node is not None:
            data, places = build(node, file, out)
            # What stands behind an anchor is read once for each alias, and reported once.
            return YamlDocument(file, data, places, tuple(dict.fromkeys(out.items)))
    except (yaml.YAMLError, RecursionError) as error:
        return YamlDocument(file, diagnostics=(explain(error, text, file),))
    out.error("yaml/empty", f"{file} holds nothing", span=Span(file, 1, 1), hint="fill it, or name another file")
    return YamlDocument(file, diagnostics=tuple(out.items))


def dotted(path: KeyPath) -> str:
    """`("services", 0, "name")` as `services.0.name`, the form of `Diagnostic.path` and of `--set`."""
    return ".".join(str(part) for part in path)


def matches(data: Any, pattern: str) -> Iterator[tuple[KeyPath, Any]]:
    """Every path in nested mappings that fits the dotted `pattern` (`roles.*.env.*`), with its value."""
    yield from _matches(data, pattern.split("."), ())


def value_at(data: Any, path: KeyPath) -> Any:
    """What stands at `path`, None if nothing does."""
    for part in path:
        if isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            data = data.get(part) if isinstance(data, dict) else None
    return data


def with_source_text(document: YamlDocument, patterns: Iterable[str]) -> Any:
    """A copy of the data in which each number that fits a pattern is text as it was written (`1.50`, `0x10`)."""
    data = copy.deepcopy(document.data)
    for pattern in patterns:
        for path, value in matches(document.data, pattern):
            if isinstance(value, int | float) and not isinstance(value, bool):
                value_at(data, path[:-1])[path[-1]] = document.text(path)
    return data


def _matches(data: Any, pattern: list[str], path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    if not pattern:
        yield path, data
    elif isinstance(data, dict):
        for key, value in data.items():
            if fnmatchcase(key, pattern[0]):
                yield from _matches(value, pattern[1:], (*path, key))


def _steps(data: Any, words: list[str]) -> Iterator[str | int]:
    while words:
        taken = 1
        step: str | int = words[0]
        if isinstance(data, dict):
            names = ((n, ".".join(words[:n])) for n in range(1, len(words) + 1))
            taken, step = next(((n, name) for n, name in names if name in data), (1, words[0]))
            data = data.get(step)
        elif isinstance(data, list) and words[0].isdecimal():
            step = int(words[0])
            data = data[step] if step < len(data) else None
        else:
            data = None
        yield step
        words = words[taken:]
