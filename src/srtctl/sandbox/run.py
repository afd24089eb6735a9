"""Short commands whose failure is worth a sentence."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from srtctl.sandbox.errors import SandboxError
from srtctl.sandbox.packages import find_program


def run(program: str, arguments: Sequence[str], text: str = "") -> str:
    """Runs a program with `text` as its input; returns its output. Raises SandboxError with what it said on stderr."""
    argv = [find_program(program) or program, *arguments]
    try:
        done = subprocess.run(argv, input=text, capture_output=True, text=True, errors="replace", check=False)
    except FileNotFoundError:
        raise SandboxError(f"there is no `{program}` on this machine", hint="run `srtctl sandbox install`") from None
    if done.returncode:
        words = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise SandboxError(f"`{program} {' '.join(arguments)}` failed: {words}")
    return done.stdout
