"""Many names and numbers in few words, as Slurm writes host lists."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

from srtctl.plan.model import Claim

_NUMBERED = re.compile(r"(.*-)(\d+)(.*)")


def ranges(numbers: Iterable[int]) -> str:
    """`(0, 1, 2, 5)` as `0-2,5`, in the order given."""
    out: list[list[int]] = []
    for number in numbers:
        if out and number == out[-1][-1] + 1:
            out[-1].append(number)
        else:
            out.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in out)


def name_list(names: Sequence[str]) -> str:
    """`("agg-0.0", "agg-1.0", "agg-2.0", "etcd")` as `agg-[0-2].0, etcd`: every name, none left out.

    Numbers in steps are written as in Slurm's arrays, `0-56:8`.
    """
    groups: dict[tuple[str, str] | str, list[int]] = {}
    for name in names:
        if (match := _NUMBERED.fullmatch(name)) and str(int(match[2])) == match[2]:
            groups.setdefault((match[1], match[3]), []).append(int(match[2]))
        else:
            groups[name] = []
    parts = []
    for key, numbers in groups.items():
        if isinstance(key, str):
            parts.append(key)
        else:
            text = str(numbers[0]) if len(numbers) == 1 else f"[{stepped(sorted(numbers))}]"
            parts.append(f"{key[0]}{text}{key[1]}")
    return ", ".join(parts)


def span(claim: Claim) -> str:
    """`9100`, `5200-5201`."""
    return str(claim.first) if claim.count == 1 else f"{claim.first}-{claim.first + claim.count - 1}"


def count(number: int, noun: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def stepped(numbers: Sequence[int]) -> str:
    """Ascending numbers as `ranges` writes them, or as `0-56:8` where they are in steps."""
    steps = {b - a for a, b in pairwise(numbers)}
    if len(numbers) > 2 and len(steps) == 1 and steps != {1}:
        return f"{numbers[0]}-{numbers[-1]}:{steps.pop()}"
    return ranges(numbers)
