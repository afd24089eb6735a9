"""What the terminal can show."""

from __future__ import annotations

import os
import sys
from typing import TextIO


def color_enabled(stream: TextIO | None = None) -> bool:
    """Whether to colour output on `stream` (stdout): a terminal, and neither NO_COLOR nor TERM=dumb (no-color.org)."""
    return (stream or sys.stdout).isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
