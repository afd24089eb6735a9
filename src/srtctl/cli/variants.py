"""Files that hold several recipes, as `plan` and `apply` show them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from srtctl.plan.variants import PlannedVariant

# Columns: a longer name moves its text.
NAME_WIDTH = 48


def variant_lines(path: Path, variants: Sequence[PlannedVariant], verb: str) -> list[str]:
    """One line a variant, with what it would run or the first reason why not; then what to type for more."""
    from srtctl.plan.validate import summary

    width = min(max(len(item.name) for item in variants), NAME_WIDTH)
    bad = sum(item.plan is None for item in variants)
    lines = [f"{path} holds {len(variants)} variants{f', {bad} bad' if bad else ''}"]
    for item in variants:
        said = amount(summary(item.plan)).removeprefix(": ") if item.plan else _why(item)
        lines.append(f"  {'ok  ' if item.plan else 'FAIL'} {item.name:<{width}}  {said}")
    example = next((item.name for item in variants if item.plan), variants[0].name)
    from srtctl.recipe.variants import split_selector

    file = split_selector(path)[0]
    if bad:
        lines.append(f"where, and what to do: srtctl validate {shlex.quote(str(file))}")
    return [*lines, f"one of them: srtctl {verb} {shlex.quote(f'{file}:{example}')}"]


def variants_data(variants: Sequence[PlannedVariant]) -> dict[str, Any]:
    """The plans, and for a variant without one the diagnostics, as JSON-ready data."""
    from srtctl.plan.serial import plan_dict

    return {
        "plans": [
            {"variant": item.name}
            | (
                {"plan": plan_dict(item.plan)}
                if item.plan
                else {"diagnostics": [d.as_dict() for d in item.diagnostics]}
            )
            for item in variants
        ]
    }


def amount(plan: Mapping[str, Any] | None) -> str:
    """`: 2 nodes, 4 GPUs, 2 agg`; "" where there is no plan."""
    if plan is None:
        return ""
    workers = ", ".join(f"{count} {role}" for role, count in plan["workers"].items())
    return f": {plan['nodes']} node{'s' * (plan['nodes'] != 1)}, {plan['gpus']} GPUs, {workers}"


def _why(item: PlannedVariant) -> str:
    first, more = item.errors[0], len(item.errors) - 1
    return first.message + (f" (and {more} more)" if more else "")
