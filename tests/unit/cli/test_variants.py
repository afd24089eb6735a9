"""Verbs on a file with several recipes: `plan` and `apply` list them, `render` and `validate` take them all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from fake_slurm import Bench
from typer.testing import CliRunner

from srtctl.cli.app import app
from srtctl.plan.variants import folder_names

FILE = """\
schema: 2
base:
  name: job
  model: {path: /models/tiny, container: none}
  resources: {gpus_per_node: 2}
  engine: sglang
  roles:
    agg: {nodes: 1, gpus: 2, sidecar: true, kv_events: true, args: {tp-size: 2}}
override_two:
  roles: {agg: {nodes: 2, workers: 2}}
zip_override_scale:
  roles: {agg: {nodes: [1, 3], workers: [1, 3]}}
"""
BAD = FILE.replace("workers: [1, 3]", "workers: [1, 9]")
NAMES = ["override_two", "zip_override_scale[0]", "zip_override_scale[1]"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("SRTCTL_CLUSTER", "SRTCTL_SANDBOX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("SRTCTL_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "srtslurm.yaml").write_text("cluster: here\n")
    (tmp_path / "r.yaml").write_text(FILE)
    (tmp_path / "bad.yaml").write_text(BAD)
    return tmp_path


def run(*argv: str) -> Any:
    return CliRunner().invoke(app, list(argv))


def test_plan_lists_them(home: Path) -> None:
    result = run("plan", "r.yaml")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "r.yaml holds 3 variants",
        "  ok   override_two           2 nodes, 4 GPUs, 2 agg",
        "  ok   zip_override_scale[0]  1 node, 2 GPUs, 1 agg",
        "  ok   zip_override_scale[1]  3 nodes, 6 GPUs, 3 agg",
        "one of them: srtctl plan r.yaml:override_two",
    ]


def test_plan_says_which_of_them_cannot_run(home: Path) -> None:
    result = run("plan", "bad.yaml")
    assert result.exit_code == 2
    assert "bad.yaml holds 3 variants, 1 bad" in result.stdout
    assert "  FAIL zip_override_scale[1]  9 agg workers of 2 GPUs do not fit on 3 nodes" in result.stdout
    assert "where, and what to do: srtctl validate bad.yaml" in result.stdout


@pytest.mark.parametrize(("output", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_plan_as_data(home: Path, output: str, read: Any) -> None:
    result = run("plan", "bad.yaml", "-o", output)
    assert result.exit_code == 2
    found = read(result.stdout)["plans"]
    assert [item["variant"] for item in found] == NAMES
    assert [item.get("plan", {}).get("name") for item in found] == ["job_two", "job_scale_0", None]
    assert [d["code"] for d in found[2]["diagnostics"]] == ["placement/oversubscribed"]


def test_plan_of_one_is_as_ever(home: Path) -> None:
    result = run("plan", "r.yaml:zip_override_scale[1]", "-o", "json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["name"] == "job_scale_1"
    assert run("plan", "r.yaml:override_two").stdout.startswith("job_two")


def test_plan_of_a_group_lists_the_group(home: Path) -> None:
    assert "holds 2 variants" in run("plan", "r.yaml:zip_override_scale").stdout


def test_a_name_that_is_none(home: Path) -> None:
    result = run("plan", "r.yaml:override_tow")
    assert result.exit_code == 2
    assert "r.yaml has no variant `override_tow`" in result.stderr
    assert "did you mean `override_two`?" in result.stderr


def test_set_changes_each_of_them(home: Path) -> None:
    found = json.loads(run("plan", "r.yaml", "-o", "json", "--set", "roles.agg.args.page-size=32").stdout)["plans"]
    words = [item["plan"]["workers"][0]["processes"][0]["argv"] for item in found]
    assert all("--page-size" in argv for argv in words)


def test_diff_wants_one(home: Path) -> None:
    result = run("plan", "r.yaml", "--diff", "r.yaml:override_two")
    assert result.exit_code == 2
    assert "variants/several" in result.stderr
    result = run("plan", "r.yaml:zip_override_scale[0]", "--diff", "r.yaml:override_two")
    assert result.exit_code == 2
    assert "- name job_two\n  + name job_scale_0" in result.stdout


def test_explain_wants_one(home: Path) -> None:
    result = run("explain", "roles.agg.nodes", "--recipe", "r.yaml")
    assert result.exit_code == 2
    assert "holds 3 variants" in result.stderr
    result = run("explain", "roles.agg.nodes", "--recipe", "r.yaml:override_two")
    assert result.exit_code == 0
    assert "2 (r.yaml:10:24)" in result.stdout


def test_render_gives_each_a_folder(home: Path) -> None:
    result = run("render", "r.yaml", "--to", "out", "--run-dir", "/shared/run")
    assert result.exit_code == 0, result.stderr
    folders = ["override_two", "zip_override_scale_0", "zip_override_scale_1"]
    assert sorted(path.name for path in (home / "out").iterdir()) == folders
    for folder in folders:
        assert f"/shared/run/{folder}" in (home / "out" / folder / "job.sbatch").read_text()
    assert yaml.safe_load((home / "out" / "override_two" / "recipe.yaml").read_text())["name"] == "job_two"


def test_render_writes_nothing_where_one_cannot_run(home: Path) -> None:
    result = run("render", "bad.yaml", "--to", "out")
    assert result.exit_code == 2
    assert "placement/oversubscribed" in result.stderr
    assert not (home / "out").exists()


def test_validate_checks_all_of_them(home: Path) -> None:
    result = run("validate", "r.yaml", "bad.yaml")
    assert result.exit_code == 2
    lines = result.stdout.splitlines()
    assert lines[:3] == [
        "ok   r.yaml:override_two: 2 nodes, 4 GPUs, 2 agg",
        "ok   r.yaml:zip_override_scale[0]: 1 node, 2 GPUs, 1 agg",
        "ok   r.yaml:zip_override_scale[1]: 3 nodes, 6 GPUs, 3 agg",
    ]
    assert lines[-1] == "2 files with 6 recipes, 1 bad (1 error)"
    data = json.loads(run("validate", "bad.yaml", "-o", "json").stdout)
    assert [(item["file"], item["variant"], item["ok"]) for item in data] == [
        ("bad.yaml", "override_two", True),
        ("bad.yaml", "zip_override_scale[0]", True),
        ("bad.yaml", "zip_override_scale[1]", False),
    ]


def test_apply_lists_them_and_submits_none(bench: Bench) -> None:
    Path("r.yaml").write_text(FILE)
    result = run("apply", "r.yaml", "--cluster", "none")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "r.yaml holds 3 variants" in result.stderr
    assert "one of them: srtctl apply r.yaml:override_two" in result.stderr
    assert not Path("runs").exists()


def test_folders() -> None:
    names = ["a[0]", "tp=1,ep=true", "o:a=1", "x/y", "x_y", "..", ""]
    assert folder_names(names) == ["a_0", "tp=1_ep=true", "o_a=1", "x_y", "x_y.2", "variant", "variant.2"]
