"""Plan values as shell words: quoted, except for the few references that only the job can fill in."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from itertools import takewhile

#: What job.sh and node.sh bind: node addresses, the run's folder, and a step's node-local scratch folder.
_REFERENCE = re.compile(r"(\$\{NODE_ADDR\[\d+\]\}|\$\{RUN_DIR\}|\$\{SCRATCH\})")


def word(value: str) -> str:
    """One shell word that expands to `value`, its references filled in by the job."""
    parts = _REFERENCE.split(value)
    # In single quotes a reader, and shellcheck, take `$` and backticks for a mistake.
    if len(parts) == 1 and not re.search("[$`]", value):
        return shlex.quote(value)
    return '"' + "".join(part if i % 2 else re.sub(r'([\\"$`])', r"\\\1", part) for i, part in enumerate(parts)) + '"'


def assignment(name: str, value: str) -> str:
    """`NAME=value` as one word of an array; always quoted, so that nobody reads it as an assignment."""
    quoted = word(f"{name}={value}")
    return quoted if quoted[0] in "'\"" else f"'{quoted}'"


def option(name: str, value: str | None) -> str:
    """An option of Slurm's as one word: `--name=value`, `-nvalue` where the name is a letter; None is no value."""
    joint = "=" if len(name) > 1 else ""
    return word(f"{'--' if joint else '-'}{name}" + ("" if value is None else f"{joint}{value}"))


def flag_groups(argv: Sequence[str]) -> list[tuple[str, ...]]:
    """argv in lines: the command first, then each flag with its values."""
    groups: list[list[str]] = [[]]
    for item in argv:
        if item.startswith("--"):
            groups.append([])
        groups[-1].append(item)
    return [tuple(g) for g in groups if g]


def lines(groups: Sequence[Sequence[str]]) -> list[str]:
    """Each group as one line of quoted words."""
    return [" ".join(map(word, group)) for group in groups]


def common_prefix(rows: Sequence[Sequence[tuple[str, ...]]]) -> int:
    """How many leading groups all rows share."""
    return sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, zip(*rows, strict=False)))


def common_items(maps: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """The entries that all maps share, sorted by name."""
    first = maps[0] if maps else {}
    return {k: v for k, v in sorted(first.items()) if all(m.get(k) == v for m in maps)}
