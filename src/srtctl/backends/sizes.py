"""Parallel sizes from engine arguments: one rule for every spelling."""

from __future__ import annotations

from srtctl.diagnostics import Diagnostic
from srtctl.recipe.arguments import Arguments

TENSOR = ("tensor-parallel-size", "tp-size", "tp")
DATA = ("data-parallel-size", "dp-size", "dp")
PIPELINE = ("pipeline-parallel-size", "pp-size", "pp")


def size(args: Arguments, names: tuple[str, ...]) -> tuple[int, list[Diagnostic]]:
    """The size under any of its spellings (default 1), with a finding for a bad value or two that disagree."""
    found = args.all(*names)
    problems = [
        Diagnostic(
            "args/size",
            f"`{a.flag}` must be a whole number of at least 1, not {a.value!r}",
            a.path,
            hint="write a plain number, for example 2",
        )
        for a in found
        if not _is_size(a.value)
    ]
    good = [a for a in found if _is_size(a.value)]
    for other in good[1:]:
        if int(other.value) != int(good[0].value):
            problems.append(
                Diagnostic(
                    "args/size-conflict",
                    f"`{other.flag}: {other.value}` contradicts `{good[0].flag}: {good[0].value}`: both set the same size",
                    other.path,
                    hint="keep one of them",
                )
            )
    return (int(good[0].value) if good else 1), problems


def _is_size(value: object) -> bool:
    if isinstance(value, bool):
        return False
    return (isinstance(value, int) and value >= 1) or (isinstance(value, str) and value.isdecimal() and int(value) >= 1)
