"""Which cluster profile is used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from srtctl.cluster.load import find_profile
from srtctl.cluster.paths import PROFILE_NAME, config_dir, data_dir, sandbox_dir, sandbox_name


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"SRTCTL_DATA_DIR": str(tmp_path / "data"), "XDG_CONFIG_HOME": str(tmp_path / "config")}


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    folder = tmp_path / "work" / "deep"
    folder.mkdir(parents=True)
    return folder


def write(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("cluster: x\n")
    return path


def test_the_order(tmp_path: Path, cwd: Path, env: dict[str, str]) -> None:
    assert find_profile(None, cwd, env) is None
    user = write(tmp_path / "config" / "srtctl" / PROFILE_NAME)
    assert find_profile(None, cwd, env) == user
    sandbox = write(tmp_path / "data" / "sandbox" / "default" / PROFILE_NAME)
    assert find_profile(None, cwd, env) == sandbox
    parent = write(cwd.parent / PROFILE_NAME)
    assert find_profile(None, cwd, env) == parent
    here = write(cwd / PROFILE_NAME)
    assert find_profile(None, cwd, env) == here
    named = write(tmp_path / "named.yaml")
    assert find_profile(None, cwd, env | {"SRTCTL_CLUSTER": str(named)}) == named
    assert find_profile("option.yaml", cwd, env | {"SRTCTL_CLUSTER": str(named)}) == cwd / "option.yaml"


def test_a_named_sandbox(tmp_path: Path, cwd: Path, env: dict[str, str]) -> None:
    write(tmp_path / "data" / "sandbox" / "default" / PROFILE_NAME)
    other = write(tmp_path / "data" / "sandbox" / "other" / PROFILE_NAME)
    assert find_profile(None, cwd, env | {"SRTCTL_SANDBOX": "other"}) == other
    assert find_profile(None, cwd, env | {"SRTCTL_SANDBOX": "gone"}) is None


@pytest.mark.parametrize(("option", "variable"), [("none", ""), (None, "none"), ("none", "/some/file")])
def test_none_means_no_profile_even_beside_one(
    cwd: Path, env: dict[str, str], option: str | None, variable: str
) -> None:
    write(cwd / PROFILE_NAME)
    assert find_profile(option, cwd, env | {"SRTCTL_CLUSTER": variable}) is None


def test_a_folder_of_that_name_is_no_profile(cwd: Path, env: dict[str, str]) -> None:
    (cwd / PROFILE_NAME).mkdir()
    assert find_profile(None, cwd, env) is None


def test_where_srtctl_keeps_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    assert data_dir({"SRTCTL_DATA_DIR": "/d", "XDG_DATA_HOME": "/x"}) == Path("/d")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert data_dir({"XDG_DATA_HOME": "/x"}) == Path("/var/lib/srtctl")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert data_dir({"XDG_DATA_HOME": "/x"}) == Path("/x/srtctl")
    assert data_dir({}) == Path.home() / ".local/share/srtctl"
    assert config_dir({}) == Path.home() / ".config/srtctl"
    assert sandbox_name({"SRTCTL_SANDBOX": "s"}) == "s"
    assert sandbox_name({}) == "default"
    assert sandbox_dir("s", {"SRTCTL_DATA_DIR": "/d"}) == Path("/d/sandbox/s")
