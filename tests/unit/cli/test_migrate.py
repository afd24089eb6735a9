"""`srtctl migrate`: to stdout, or in place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from srtctl.cli.app import app

OLD = "name: x # mine\nbackend:\n  type: sglang\n"
NEW = "schema: 2\nname: x # mine\nengine: sglang\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("r").mkdir()
    Path("r/old.yaml").write_text(OLD)
    Path("r/new.yaml").write_text(NEW)
    return tmp_path


def run(*argv: str) -> Any:
    return CliRunner().invoke(app, ["migrate", *argv])


def test_one_file_is_printed_and_stays() -> None:
    result = run("r/old.yaml")
    assert (result.exit_code, result.stdout, result.stderr) == (0, NEW, "")
    assert Path("r/old.yaml").read_text() == OLD
    assert run("r/new.yaml").stdout == NEW


def test_in_place_changes_what_is_old() -> None:
    Path("r/old.yaml").chmod(0o640)
    result = run("r", "--in-place")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "2 files, 1 changed\n")
    assert Path("r/old.yaml").read_text() == NEW
    assert Path("r/old.yaml").stat().st_mode & 0o777 == 0o640
    assert run("r", "--in-place").stderr == "2 files, 0 changed\n"
    assert sorted(path.name for path in Path("r").iterdir()) == ["new.yaml", "old.yaml"]


def test_a_link_stays_a_link() -> None:
    Path("link.yaml").symlink_to("r/old.yaml")
    assert run("link.yaml", "-i").exit_code == 0
    assert Path("link.yaml").is_symlink()
    assert Path("r/old.yaml").read_text() == NEW


def test_several_need_a_place() -> None:
    result = run("r")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--in-place" in result.stderr


def test_a_bad_file_stays_and_the_others_are_done() -> None:
    Path("r/bad.yaml").write_text("backend: [\n")
    result = run("r", "-i", "none.yaml")
    assert result.exit_code == 2
    assert "yaml/syntax" in result.stderr
    assert "yaml/not-found" in result.stderr
    assert Path("r/old.yaml").read_text() == NEW
    assert Path("r/bad.yaml").read_text() == "backend: [\n"
