"""Bash for people: one flag a line, what the job fills in as `$SRT_…`, and a named cause where a tool is missing."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence

#: Set by the job for the client (`srtctl.plan.client`).
URL, RESULTS = "$SRT_FRONTEND_URL", "$SRT_RESULTS_DIR"
_REFERENCE = re.compile(r"(\$SRT_[A-Z_]+)")

Flag = tuple[str, str | int | None]


def command(head: Sequence[str], flags: Iterable[Flag]) -> str:
    """The command over several lines: `head`, then a line for each flag (a value of None: it has none)."""
    lines = [" ".join(map(word, head))]
    lines += [name if value is None else f"{name} {word(str(value))}" for name, value in flags]
    return " \\\n  ".join(lines)


def function(name: str, head: Sequence[str], flags: Iterable[Flag]) -> str:
    """The command as a bash function, whose own arguments come last."""
    body = command(head, flags).replace("\n", "\n  ")
    return f'{name}() {{\n  {body} \\\n    "$@"\n}}'


def call(name: str, flags: Iterable[Flag]) -> str:
    """A call of such a function, in one line."""
    words = (part for flag, value in flags for part in ((flag,) if value is None else (flag, word(str(value)))))
    return " ".join((name, *words))


def word(value: str) -> str:
    """One shell word; `$SRT_…` in it is filled in by the job."""
    parts = _REFERENCE.split(value)
    if len(parts) == 1:
        return shlex.quote(value)
    escaped = (re.sub(r'([\\"$`])', r"\\\1", part) if i % 2 == 0 else part for i, part in enumerate(parts))
    return '"' + "".join(escaped).replace(f"{URL}/", "${SRT_FRONTEND_URL}/") + '"'


def script(title: str, *parts: str) -> str:
    """A bash script that stops at the first command that fails."""
    return "\n\n".join([f"# {title}\nset -euo pipefail", *(part for part in parts if part)]) + "\n"


def need_module(module: str, what: str) -> str:
    """Fails where the image's Python has no such module, and names it."""
    find = f'import importlib.util, sys; sys.exit(importlib.util.find_spec("{module}") is None)'
    return _need(f"python3 -c {shlex.quote(find)}", f"Python module {module}", what)


def need_command(name: str, what: str, package: str | None = None) -> str:
    """Fails where the image has no such command, and names it. `package`: what pip installs first where it is missing."""
    install = (
        f"command -v {name} >/dev/null || python3 -m pip install --quiet {shlex.quote(package)}\n" if package else ""
    )
    return install + _need(f"command -v {name}", f"command {name}", what)


def number(value: float) -> str:
    """`2000.0` as `2000`, `inf` as `inf`."""
    return str(int(value)) if value.is_integer() else str(value)


def _need(test: str, thing: str, what: str) -> str:
    words = shlex.quote(f"error: the image has no {thing}, which {what} runs")
    return f"{test} >/dev/null 2>&1 || {{\n  echo {words} >&2\n  exit 127\n}}"
