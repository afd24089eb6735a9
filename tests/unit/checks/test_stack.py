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
OWNER = "the sidecar of agg-0.0"
USE = Use(("python3", "-m", SIDECAR), OWNER, {"--grpc-endpoint": OWNER, "--bootstrap-host": OWNER})
DIRECT = "--advertise-grpc-endpoint"


def plan(python: str = "python3") -> Any:
    sidecars = [["--grpc-endpoint", "h:1", "--bootstrap-host=h"], ["--grpc-endpoint", "h:2"]]
    processes = [
        {"name": f"agg-0.{rank}", "sidecar": {"argv": [python, "-m", SIDECAR, *flags], "env": {}}}
        for rank, flags in enumerate(sidecars)
    ]
    return {
        "frontends": [
            {"name": "frontend-0", "argv": [python, "-m", "dynamo.frontend", "--http-port", "8000"], "env": {}}
        ],
        "workers": [{"processes": [*processes, {"name": "agg-0.2", "sidecar": None}]}],
        "identity": {},
    }


def test_each_module_once_with_all_its_flags() -> None:
    assert list(uses(plan())) == [
        Use(("python3", "-m", "dynamo.frontend"), "frontend-0", {"--http-port": "frontend-0"}),
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
    assert [each.startswith(words) for each in found] == [True] * bool(words)


def test_a_sidecar_of_its_own_binary_is_asked_too_and_another_frontend_is_not() -> None:
    asked = plan()
    asked["workers"][0]["processes"][0]["sidecar"]["argv"] = ["/opt/sidecar", "--grpc-endpoint", "h:1"]
    asked["frontends"][0]["argv"] = ["python3", "-m", "sglang_router.launch_router", "--port", "1"]
    assert [(use.name, dict(use.flags)) for use in uses(asked)] == [
        ("/opt/sidecar", {"--grpc-endpoint": OWNER}),
        (SIDECAR, {"--grpc-endpoint": "the sidecar of agg-0.1"}),
    ]


def test_a_flag_of_no_release_is_named_with_its_first_user() -> None:
    asked = plan()
    asked["workers"][0]["processes"][1]["sidecar"]["argv"] += [DIRECT, "h:2"]
    _, sidecar = uses(asked)
    [words] = missing(sidecar, 0, HELP)
    assert words.startswith(
        f"its {SIDECAR} has no {DIRECT}, which the sidecar of agg-0.1 uses; direct dispatch is in no"
    )
    assert missing(sidecar, 0, f"{HELP}  {DIRECT} <E>\n") == []


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
        (
            'echo "No module named $2" >&2; exit 1',
            4,
            "it has no module dynamo.frontend, which frontend-0 runs; what srtctl",
        ),
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


def test_another_python_can_be_asked_instead(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(plan(os.fspath(tmp_path / "nowhere"))))
    python = fake_python(tmp_path, "echo --grpc-endpoint --bootstrap-host")
    assert main([str(tmp_path / "plan.json"), python]) == 4
    assert "has no --http-port, which frontend-0 uses" in capsys.readouterr().out


def test_a_program_of_its_own_that_is_missing_is_named_where_it_would_run_and_only_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    python = fake_python(tmp_path, "echo --grpc-endpoint --bootstrap-host --http-port")
    asked = plan(python)
    asked["workers"][0]["processes"][0]["sidecar"]["argv"] = ["no-such-sidecar", "--grpc-endpoint", "h:1"]
    (tmp_path / "plan.json").write_text(json.dumps(asked))
    assert main([str(tmp_path / "plan.json")]) == 4
    assert "there is no command no-such-sidecar, which the sidecar of agg-0.0 runs; use" in capsys.readouterr().out
    assert main([str(tmp_path / "plan.json"), python]) == 5
    assert capsys.readouterr().out == ""


def test_a_program_is_looked_for_where_its_role_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    python = fake_python(tmp_path, "echo --grpc-endpoint --bootstrap-host --http-port")
    (tmp_path / "their").mkdir()
    (tmp_path / "their/own-sidecar").write_text('#!/bin/sh\necho "--grpc-endpoint"\n')
    (tmp_path / "their/own-sidecar").chmod(0o755)
    asked = plan(python)
    asked["workers"][0]["processes"][0]["sidecar"] = {
        "argv": ["own-sidecar", "--grpc-endpoint", "h:1"],
        "env": {"PATH": f"{tmp_path}/their:{os.environ['PATH']}"},
    }
    (tmp_path / "plan.json").write_text(json.dumps(asked))
    assert (main([str(tmp_path / "plan.json")]), capsys.readouterr().out) == (0, "")


@pytest.mark.parametrize(("script", "mode"), [("exec sleep 60", 0o755), ("exit 0", 0o644)])
def test_what_cannot_be_asked_is_no_verdict(
    script: str, mode: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stack, "HELP_SECONDS", 0.1)
    python = fake_python(tmp_path, script)
    Path(python).chmod(mode)
    (tmp_path / "plan.json").write_text(json.dumps(plan(python)))
    assert main([str(tmp_path / "plan.json")]) == 5
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("frameworks", "said"),
    [
        ({"dynamo": "1.6.1"}, ""),
        ({"sglang": "0.5.11"}, ""),
        (
            {"dynamo": "1.3.0"},
            "note: the installed Dynamo 1.6.1 is not the one that the recipe's identity names, 1.3.0\n",
        ),
    ],
)
def test_another_version_than_the_recipe_says_is_only_a_note(
    frameworks: dict[str, str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setattr(stack, "dynamo_version", lambda: "Dynamo 1.6.1")
    python = fake_python(tmp_path, "echo --grpc-endpoint --bootstrap-host --http-port")
    (tmp_path / "plan.json").write_text(json.dumps({**plan(python), "identity": {"frameworks": frameworks}}))
    assert main([str(tmp_path / "plan.json")]) == 0
    assert capsys.readouterr().out == said
