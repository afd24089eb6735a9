"""`srtctl validate`, and what `srtctl plan` says of a recipe that cannot run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from srtctl.cli.app import app

GOOD = """\
schema: 2
name: good
model: {path: /models/tiny, container: none}
resources: {gpus_per_node: 2}
engine: sglang
roles:
  agg: {nodes: 2, workers: 2, gpus: 2, sidecar: true, kv_events: true, args: {tp-size: 2}}
"""
BAD = GOOD.replace("workers: 2", "wokers: 2")
WARNS = GOOD.replace("tp-size: 2}}", "tp-size: 2}}\nfrontend: {args: {router-mode: random}}")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of recipes with a profile, far from the user's own."""
    for name in ("SRTCTL_CLUSTER", "SRTCTL_SANDBOX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("SRTCTL_DATA_DIR", str(tmp_path / "data"))
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    (home / "srtslurm.yaml").write_text("cluster: here\n")
    return home


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def run(*argv: str) -> Any:
    return CliRunner().invoke(app, list(argv))


def test_good_files_are_one_line_each(home: Path) -> None:
    write(home, {"a.yaml": GOOD, "b.yml": GOOD})
    result = run("validate", ".")
    assert (result.exit_code, result.stderr) == (0, "")
    assert (
        result.stdout == "ok   a.yaml: 2 nodes, 4 GPUs, 2 agg\nok   b.yml: 2 nodes, 4 GPUs, 2 agg\n2 files, all good\n"
    )


def test_a_bad_file_is_shown_with_what_is_wrong_and_the_others_are_still_looked_at(home: Path) -> None:
    write(home, {"a.yaml": BAD, "b.yaml": GOOD, "c.yaml": "- 1\n"})
    result = run("validate", ".")
    assert result.exit_code == 2
    assert result.stdout.splitlines() == [
        "FAIL a.yaml",
        "  a.yaml:7:19: error[recipe/unknown-key]: `roles.agg.wokers` is not a known key",
        "        agg: {nodes: 2, wokers: 2, gpus: 2, sidecar: true, kv_events: true, args: {tp-size: 2}}",
        "                        ^^^^^^",
        "    hint: did you mean `workers`?",
        "ok   b.yaml: 2 nodes, 4 GPUs, 2 agg",
        "FAIL c.yaml",
        "  c.yaml:1:1: error[recipe/type]: a recipe is a mapping, not a list",
        "      - 1",
        "      ^",
        "    hint: begin with `schema: 2`",
        "3 files, 2 bad (2 errors)",
    ]


def test_warnings_do_not_fail(home: Path) -> None:
    write(home, {"a.yaml": WARNS})
    result = run("validate", "a.yaml")
    assert result.exit_code == 0
    assert result.stdout.startswith("ok   a.yaml: 2 nodes")
    assert "warning[plan/kv-events-unused]" in result.stdout
    assert result.stdout.endswith("1 file, all good (1 warning)\n")


def test_what_is_assumed_without_a_profile_is_said_once(home: Path) -> None:
    write(home, {"a.yaml": GOOD, "b.yaml": GOOD})
    result = run("validate", ".", "--cluster", "none")
    assert result.exit_code == 0
    assert result.stdout.count("plan/assumed") == 1
    assert run("validate", ".", "--cluster", "none", "-o", "github").stdout.count("plan/assumed") == 1


def test_folders_are_searched_and_files_taken_as_named(home: Path) -> None:
    write(
        home,
        {
            "r/z.yaml": GOOD,
            "r/deep/er/a.yml": GOOD,
            "r/.github/ci.yaml": "on: push\n",
            "r/.hidden.yaml": "x\n",
            "r/srtslurm.yaml": "cluster: c\n",
            "r/readme.md": "x\n",
            "other.txt": GOOD,
        },
    )
    (home / "r" / "loop").symlink_to(home / "r")
    files = [item["file"] for item in json.loads(run("validate", "r", "other.txt", "r/z.yaml", "-o", "json").stdout)]
    assert files == ["r/deep/er/a.yml", "r/z.yaml", "other.txt"]
    hidden = json.loads(run("validate", "r/.hidden.yaml", "-o", "json").stdout)
    assert [(item["file"], item["ok"]) for item in hidden] == [("r/.hidden.yaml", False)]


def test_any_other_yaml_in_a_folder_counts_as_a_recipe(home: Path) -> None:
    write(home, {"r/lost.yaml": GOOD.replace("schema: 2\n", "")})
    result = run("validate", "r")
    assert result.exit_code == 2
    assert "`schema` is missing" in result.stdout


@pytest.mark.parametrize(
    ("path", "code"), [("no.yaml", "yaml/not-found"), ("empty", "validate/empty"), ("empty.yaml", "yaml/empty")]
)
def test_nothing_to_look_at_is_bad(home: Path, path: str, code: str) -> None:
    (home / "empty").mkdir()
    (home / "empty.yaml").touch()
    write(home, {"a.yaml": GOOD})
    result = run("validate", "a.yaml", path)
    assert result.exit_code == 2
    assert f"FAIL {path}\n" in result.stdout
    assert code in result.stdout
    assert result.stdout.endswith("2 files, 1 bad (1 error)\n")


def test_json(home: Path) -> None:
    write(home, {"a.yaml": GOOD, "b.yaml": BAD})
    result = run("validate", ".", "-o", "json")
    assert result.exit_code == 2
    good, bad = json.loads(result.stdout)
    assert good == {
        "file": "a.yaml",
        "ok": True,
        "plan": {"name": "good", "nodes": 2, "gpus": 4, "workers": {"agg": 2}},
        "diagnostics": [],
    }
    assert (bad["file"], bad["ok"], "plan" in bad) == ("b.yaml", False, False)
    assert [(item["code"], item["line"], item["column"]) for item in bad["diagnostics"]] == [
        ("recipe/unknown-key", 7, 19)
    ]


def test_github(home: Path) -> None:
    write(home, {"r/a.yaml": GOOD, "r/b.yaml": BAD})
    for option in ("--format", "-o"):
        result = run("validate", "r", option, "github")
        assert result.exit_code == 2
        [line] = result.stdout.splitlines()
        assert line.startswith("::error file=r/b.yaml,line=7,col=19,title=recipe/unknown-key,")
        assert line.endswith("hint: did you mean `workers`?")


def test_a_wrong_profile_is_a_file_of_its_own(home: Path) -> None:
    write(home, {"srtslurm.yaml": "cluster: here\nssh: {}\ngpu: 8\n", "a.yaml": GOOD})
    found = json.loads(run("validate", ".", "-o", "json").stdout)
    assert [(item["file"], item["ok"], len(item["diagnostics"])) for item in found] == [
        (str(home / "srtslurm.yaml"), False, 2),
        ("a.yaml", True, 0),
    ]
    write(home, {"srtslurm.yaml": "cluster: [\n"})
    result = run("validate", ".")
    assert result.exit_code == 2
    assert result.stdout.endswith("1 file, 1 bad (1 error)\n")


def test_what_is_not_built_yet(home: Path) -> None:
    write(home, {"a.yaml": GOOD + "reporting: {s3: {bucket: b}}\n"})
    assert run("validate", ".").exit_code == 2
    assert run("validate", ".", "--allow-unsupported").exit_code == 0


def test_paths_are_needed() -> None:
    assert run("validate").exit_code == 2


class TestPlan:
    def test_json_errors_go_to_stdout(self, home: Path) -> None:
        write(home, {"b.yaml": BAD})
        result = run("plan", "b.yaml", "-o", "json")
        assert result.exit_code == 2
        [found] = json.loads(result.stdout)["diagnostics"]
        assert (found["code"], found["file"], found["line"]) == ("recipe/unknown-key", "b.yaml", 7)
        assert "error[recipe/unknown-key]" in result.stderr

    def test_yaml_errors_too(self, home: Path) -> None:
        write(home, {"b.yaml": BAD})
        result = run("plan", "b.yaml", "-o", "yaml")
        assert result.exit_code == 2
        assert [found["code"] for found in yaml.safe_load(result.stdout)["diagnostics"]] == ["recipe/unknown-key"]

    def test_text_errors_leave_stdout_empty(self, home: Path) -> None:
        write(home, {"b.yaml": BAD})
        result = run("plan", "b.yaml")
        assert (result.exit_code, result.stdout) == (2, "")

    @pytest.mark.parametrize(
        ("fmt", "start"), [("json", "[\n"), ("github", "::error file=b.yaml,line=7,"), ("text", "b.y")]
    )
    def test_diagnostics_in_another_form(self, home: Path, fmt: str, start: str) -> None:
        write(home, {"b.yaml": BAD})
        result = run("plan", "b.yaml", "--format", fmt)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith(start)

    def test_a_good_plan_is_a_plan(self, home: Path) -> None:
        write(home, {"a.yaml": GOOD})
        result = run("plan", "a.yaml", "-o", "json", "--format", "github")
        assert (result.exit_code, result.stderr) == (0, "")
        assert json.loads(result.stdout)["name"] == "good"
