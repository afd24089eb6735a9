"""Colour for the text views."""

from __future__ import annotations

_STYLES = {"prefill": "36", "decode": "35", "agg": "32", "head": "1", "dim": "2", "removed": "31", "added": "32"}


class Paint:
    """`paint(style, text)` is `text` in ANSI colours, or as it is where colour is off."""

    def __init__(self, color: bool) -> None:
        self._color = color

    def __call__(self, style: str, text: str) -> str:
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self._color else text
