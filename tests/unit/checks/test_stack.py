"""What the installed Dynamo lacks for a plan, told before anything starts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from srtctl.checks import stack
from srtctl.checks.stack import Use, main, missing, uses

SIDECAR = "dynamo.sglang.sidecar"
HELP = "Usage: x\n  --grpc-endpoint <E>\n  --bootstrap-host <H>\n"
USE = Use("python3", SIDECAR, frozenset({"--grpc-endpoint", "--bootstrap-host"}), "the sidecar of agg-0.0")


def plan(python: str = "python3") -> Any:
    sidecars = [["--grpc-endpoint", "h:1", "--bootstrap-host=h"], ["--grpc-endpoint", "h:2"]]
    processes = [
        {"name": f"agg-0.{rank}", "sidecar": {"argv": [python, "-m", SIDECAR, *flags]}}
        for rank, flags in enumerate(sidecars)
    ]
    return {
        "frontends": [{"name": "frontend-0", "argv": [python, "-m", "dynamo.frontend", "--http-port", "8000"]}],
        "workers": [{"processes": [*processes, {"name": "agg-0.2", "sidecar": None}]}],
    }


def test_each_module_once_with_all_its_flags() -> None:
    assert list(uses(plan())) == [
        Use("python3", "dynamo.frontend", frozenset({"--http-port"}), "frontend-0"),
        USE,
    ]


@pytest.mark.parametrize(
    ("code", "said", "words"),
    [
        (0, HELP, ""),
        (0, HELP.replace("--bootstrap-host", "--bootstrap-hosts"), f"its {SIDECAR} has no --bootstrap-host, which"),
        (1, f"python3: No module named {SIDECAR}", f"it has no module {SIDECAR}, which the sidecar of agg-0.0 runs"),
        (1, f"python3: Error while finding module specification for '{SIDECAR}'", f"it has no module {SIDECAR}"),
        (1, "Segmentation fault", ""),
    ],
)
def test_what_help_shows(code: int, said: str, words: str) -> None:
    found = missing(USE, code, said)
    assert found.startswith(words)
    assert bool(words) == bool(found)


def fake_python(folder: Path, script: str) -> str:
    path = folder / "python3"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("script", "code", "words"),
    [
        ("echo --grpc-endpoint --bootstrap-host --http-port", 0, ""),
        ("echo --grpc-endpoint --http-port", 4, "has no --bootstrap-host, which the sidecar of agg-0.0 uses"),
        ('echo "No module named $2" >&2; exit 1', 4, "it has no module dynamo.frontend, which frontend-0 runs; it has"),
    ],
)
def test_the_command(
    script: str,
    code: int,
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stack, "dynamo_version", lambda: "Dynamo 1.5.0")
    (tmp_path / "plan.json").write_text(json.dumps(plan(fake_python(tmp_path, script))))
    assert main([str(tmp_path / "plan.json")]) == code
    out = capsys.readouterr().out
    assert words in out
    assert out.startswith("the installed Dynamo 1.5.0 lacks what the plan uses: ") == bool(words)
    assert out.endswith("needs Dynamo 1.6.1 or newer\n") == bool(words)


@pytest.mark.parametrize("script", ["exec sleep 60", None])
def test_what_cannot_be_asked_is_no_verdict(
    script: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stack, "HELP_SECONDS", 0.1)
    python = fake_python(tmp_path, script) if script else os.fspath(tmp_path / "nowhere")
    (tmp_path / "plan.json").write_text(json.dumps(plan(python)))
    assert main([str(tmp_path / "plan.json")]) == 5
    assert capsys.readouterr().out == ""
