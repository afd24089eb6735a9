"""The results as checks.json (version 1) and as one line a check for people."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from srtctl.checks.model import FAIL, PASS, SKIP, CheckResult, InputError, TargetResult, overall

VERSION = 1
_MARKS = {PASS: "✓", FAIL: "✗", SKIP: "-"}
_WORDS = {PASS: "pass", FAIL: "FAIL", SKIP: "skip"}


def document(results: Sequence[CheckResult], started: float, seconds: float) -> dict[str, object]:
    """The content of checks.json; `started` is Unix time."""
    return {
        "version": VERSION,
        "verdict": overall(results),
        "started": round(started, 3),
        "seconds": round(seconds, 3),
        "checks": [
            {
                "name": check.name,
                "verdict": check.verdict,
                "on_failure": check.on_failure,
                "seconds": check.seconds,
                "reason": check.reason,
                "targets": [_target(result) for result in check.targets],
            }
            for check in results
        ],
    }


def _target(result: TargetResult) -> dict[str, object]:
    content: dict[str, object] = {
        "worker": result.target.worker,
        "dp_rank": result.target.dp_rank,
        "verdict": result.verdict,
        "message": result.message,
        "evidence": dict(result.evidence),
    }
    if result.diagnosis:
        content["diagnosis"] = {"cause": result.diagnosis.cause, "remedy": result.diagnosis.remedy}
    return content


def write(path: Path, content: object) -> None:
    """Replace `path` in one step, so that a reader sees the old file or the new one. Raises InputError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None


def lines(check: CheckResult) -> list[str]:
    """`✗ kv_events  FAIL  1 of 2 targets, 15.2 s: <reason>`, then each cause with its remedy.

    A failure that only warns says so.
    """
    out = [_line(check)]
    for diagnosis in dict.fromkeys(result.diagnosis for result in check.targets if result.diagnosis):
        out += [f"    cause:  {diagnosis.cause}", f"    remedy: {diagnosis.remedy}"]
    return out


def first_failure(results: Sequence[CheckResult]) -> str:
    """The reason of the first check that failed; empty if none did."""
    return next((check.reason for check in results if check.verdict == FAIL), "")


def _line(check: CheckResult) -> str:
    passed = sum(result.verdict == PASS for result in check.targets)
    word = _WORDS[check.verdict] + (" (warning)" if check.verdict == FAIL and check.on_failure == "warn" else "")
    reason = f": {check.reason}" if check.reason else ""
    count = f"{passed} of {len(check.targets)} targets, {check.seconds:.1f} s"
    return f"{_MARKS[check.verdict]} {check.name:<12}  {word}  {count}{reason}"
