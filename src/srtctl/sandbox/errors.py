"""What the sandbox raises: one sentence, one hint, and the exit code that a command ends with."""

from __future__ import annotations

from srtctl.diagnostics import Diagnostic, DiagnosticError


class SandboxError(DiagnosticError):
    """Something failed. `detail` holds further lines for people (the end of a daemon's log), possibly empty."""

    exit_code = 1
    code = "sandbox/failed"

    def __init__(self, message: str, *, hint: str = "", detail: str = "") -> None:
        super().__init__([Diagnostic(self.code, message, hint=hint)])
        self.message = message
        self.hint = hint
        self.detail = detail


class SandboxRefusedError(SandboxError):
    """Nothing was tried: the request is wrong, or what it needs is missing or taken."""

    exit_code = 2
    code = "sandbox/refused"
