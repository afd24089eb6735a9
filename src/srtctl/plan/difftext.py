"""A difference of two plans for people."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from srtctl.plan.diff import Change, PlanDiff
from srtctl.plan.names import name_list
from srtctl.plan.paint import Paint


def diff_text(diff: PlanDiff, *, color: bool = False) -> str:
    """One block a section, `-` for what goes and `+` for what comes, with a trailing newline."""
    if diff.equal:
        return f"no difference: {diff.old} and {diff.new} run the same\n"
    paint = Paint(color)
    blocks = [[paint("removed", f"--- {diff.old}"), paint("added", f"+++ {diff.new}")]]
    for section, changes in groupby(diff.changes, key=lambda change: change.section):
        blocks.append([paint("head", section), *(line for change in changes for line in _change(change, paint))])
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _change(change: Change, paint: Paint) -> Iterator[str]:
    names = name_list(change.subjects)
    if names:
        many = f" ({len(change.subjects)})" if len(change.subjects) > 1 else ""
        yield f"  {names}{many}{'' if change.kind == 'changed' else f', {change.kind}'}"
    indent = "    " if names else "  "
    for edit in change.edits:
        if edit.old is not None:
            yield f"{indent}{paint('removed', f'- {edit.old}')}"
        if edit.new is not None:
            yield f"{indent}{paint('added', f'+ {edit.new}')}"
