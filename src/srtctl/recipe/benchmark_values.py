"""The forms in which a recipe may write lists and rates of a benchmark: `1x2x4`, `inf`, `0.1 0.5`."""

from __future__ import annotations

import math
from typing import Any

from srtctl.reading.validation import refuse, shown


def concurrencies(value: Any) -> Any:
    """A number, a list, or text with `x` between numbers → a tuple of numbers of at least 1."""
    if value is None:
        return None
    items = value.split("x") if isinstance(value, str) else value if isinstance(value, list | tuple) else [value]
    found = [_whole(item) for item in items]
    if not found or any(number is None or number < 1 for number in found):
        hint = "each number is a measurement of its own"
        raise refuse("value", f"must be whole numbers of at least 1, as a list or as `1x2x4`, not {_list(value)}", hint)
    return tuple(found)


def rate(value: Any) -> Any:
    """A number above 0 or `inf`, as number or text → float."""
    try:
        number = math.nan if isinstance(value, bool) else float(value) if value is not None else math.inf
    except (TypeError, ValueError):
        number = math.nan
    if number > 0:
        return None if value is None else number
    hint = "`inf`: as fast as the concurrency lets them"
    raise refuse("value", f"must be a number above 0, or `inf`, not {shown(value)}", hint)


def ratios(value: Any) -> Any:
    """A list, or text with blanks between, of numbers from 0 to below 1 → a tuple."""
    if value is None:
        return None
    items = value.split() if isinstance(value, str) else value if isinstance(value, list | tuple) else [value]
    try:
        found = tuple(float(item) for item in items)
    except (TypeError, ValueError):
        found = ()
    if not found or not all(0 <= ratio < 1 for ratio in found):
        raise refuse("value", f"must be numbers from 0 to below 1, as a list or as `0.1 0.5`, not {_list(value)}")
    return found


def _whole(item: Any) -> int | None:
    if isinstance(item, str) and item.strip().isdecimal():
        return int(item)
    return item if type(item) is int else None


def _list(value: Any) -> str:
    return f"[{', '.join(map(shown, value))}]" if isinstance(value, list) else shown(value)
