"""Exit codes of every verb, and how a verb gives up."""

from __future__ import annotations

from typing import NoReturn

import typer

OK = 0
FAILED = 1
USAGE = 2
CHECKS_FAILED = 3
INTERRUPTED = 130


def say(text: str) -> None:
    """One line for people, on stderr: stdout is for data."""
    typer.echo(text, err=True)


def fail(message: str, hint: str = "", code: int = FAILED) -> NoReturn:
    """Say what is wrong and what to do, and leave with `code`."""
    say(f"error: {message}")
    if hint:
        say(f"hint: {hint}")
    raise typer.Exit(code)
