"""Engine arguments as users write them (kebab or snake case, scalars, lists, mappings) and as command lines want them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Argument:
    """One user-written flag: canonical (kebab) name, value (true for a bare switch), and the recipe path it came from."""

    flag: str
    value: Any
    path: str


class Arguments:
    """Flags written in a recipe, looked up by canonical name; `base` is the recipe path of the mapping they stand in."""

    def __init__(self, base: str, args: Mapping[str, Any]) -> None:
        self._items = [
            Argument(key.lstrip("-").replace("_", "-"), True if value is None else value, f"{base}.{key}")
            for key, value in args.items()
        ]
        self._sorted = sorted((a for a in self._items if a.value is not False), key=lambda a: a.flag)

    def __iter__(self) -> Iterator[Argument]:
        """In name order: the order of flags has no meaning, so that of the recipe's keys must not matter."""
        return iter(self._sorted)

    def all(self, *names: str) -> list[Argument]:
        """Every argument under one of these names, in recipe order; an alias group may have several."""
        return [a for a in self._items if a.flag in names]

    def get(self, *names: str) -> Argument | None:
        """The first argument under one of these names."""
        return next(iter(self.all(*names)), None)

    def is_on(self, name: str) -> bool:
        """Whether a switch is given."""
        argument = self.get(name)
        return argument is not None and argument.value is not False


def words(argument: Argument) -> tuple[str, ...]:
    """The argument as command-line words: a switch alone, a list as several values, a mapping as one JSON value."""
    flag, value = f"--{argument.flag}", argument.value
    if value is True:
        return (flag,)
    if isinstance(value, Mapping):
        return (flag, compact_json(value))
    if isinstance(value, list | tuple):
        return (flag, *(compact_json(v) if isinstance(v, Mapping) else text(v) for v in value))
    return (flag, text(value))


def text(value: Any) -> str:
    """A scalar as engines read it: JSON booleans, plain numbers and strings."""
    return json.dumps(value) if isinstance(value, bool) else str(value)


def compact_json(value: Any) -> str:
    """One line without spaces, keys as the user ordered them."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
