"""Saved plans: what `srtctl plan RECIPE -o json` printed, given where a recipe could be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from srtctl.cli.exits import USAGE, fail

if TYPE_CHECKING:
    from collections.abc import Mapping

    from srtctl.diagnostics import Diagnostic
    from srtctl.plan.model import Plan

#: What a bundle keeps as recipe.yaml when it was made from a saved plan. Written, so that no older file stays there.
NO_RECIPE = "# No recipe: this bundle was made from a saved plan, the plan.json beside this file.\n"


def saved_text(path: Path) -> str | None:
    """The text of `path` when it is meant to be a saved plan; None for a recipe, and for what cannot be read."""
    try:
        if not path.is_file():  # a pipe can be read only once, by who needs it
            return None
        with path.open(encoding="utf-8-sig") as stream:
            start = stream.read(64).lstrip()
            if start and not start.startswith("{"):
                return None  # the usual case: nothing more is read or imported
            text = start + stream.read()
    except (OSError, UnicodeDecodeError):
        return None
    from srtctl.plan.serial import is_saved_plan

    return text if is_saved_plan(text, path.name) else None


def refuse_changes(path: Path, options: Mapping[str, object]) -> None:
    """Exit 2 when an option that changes a recipe is given with the saved plan at `path`."""
    if given := [name for name, value in options.items() if value]:
        fail(
            f"{path} is a saved plan: {' and '.join(given)} cannot change it",
            "plan the recipe again with the option, or leave it out",
            USAGE,
        )


def reminders(plan: Plan) -> list[Diagnostic]:
    """The plan's warnings with their place in words: the file may read differently by now."""
    return [replace(d, message=f"{d.message} ({d.span})" if d.span else d.message, span=None) for d in plan.warnings]
