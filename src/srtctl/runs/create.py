"""A directory of its own for every submission."""

from __future__ import annotations

import re
from pathlib import Path


def run_stem(name: str) -> str:
    """A recipe's name as it appears in run directories: letters, digits, dot, dash and underscore."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "run"


def run_number(directory_name: str, stem: str) -> int | None:
    """`n` of `<stem>-<n>`; None for another recipe's directory."""
    match = re.fullmatch(re.escape(stem) + r"-(\d+)", directory_name)
    return int(match[1]) if match else None


def new_run_dir(output_dir: Path, name: str) -> Path:
    """Make and return `<output_dir>/<name>-<n>` with the next number; two submissions never get the same one."""
    output_dir.mkdir(parents=True, exist_ok=True)
    stem = run_stem(name)
    number = max((run_number(p.name, stem) or 0 for p in output_dir.iterdir()), default=0)
    while True:
        number += 1
        directory = output_dir / f"{stem}-{number}"
        try:
            directory.mkdir()
        except FileExistsError:
            continue
        return directory.absolute()
