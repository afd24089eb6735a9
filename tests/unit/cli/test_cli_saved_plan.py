"""Saved plans where a recipe could be, and `plan --diff`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from fake_slurm import RECIPE, Bench
from typer.testing import CliRunner

from srtctl.cli.app import app
from srtctl.cli.saved import NO_RECIPE


def srtctl(*argv: str) -> Any:
    return CliRunner().invoke(app, list(argv))


@pytest.fixture
def saved(bench: Bench) -> Path:
    """The plan of the bench's recipe, as a user saves it."""
    (bench.home / "p.json").write_text(srtctl("plan", "demo.yaml", "-o", "json").stdout)
    return bench.home / "p.json"


def edit(saved: Path, **changes: object) -> None:
    saved.write_text(json.dumps(json.loads(saved.read_text()) | changes))


@pytest.mark.parametrize("output", ["text", "json", "yaml"])
def test_a_saved_plan_prints_as_its_recipe(saved: Path, output: str) -> None:
    again = srtctl("plan", "p.json", "-o", output)
    assert again.exit_code == 0
    assert again.stdout == srtctl("plan", "demo.yaml", "-o", output).stdout


def test_render_of_a_saved_plan(bench: Bench, saved: Path) -> None:
    for source, to in (("demo.yaml", "a"), ("p.json", "b")):
        assert srtctl("render", source, "--to", to, "--run-dir", "/runs/x").exit_code == 0
    a, b = ({p.relative_to(root): p for p in root.rglob("*")} for root in (bench.home / "a", bench.home / "b"))
    assert a.keys() == b.keys()
    different = {str(name) for name, path in a.items() if path.is_file() and path.read_text() != b[name].read_text()}
    assert different == {"recipe.yaml"}
    assert (bench.home / "b" / "recipe.yaml").read_text() == NO_RECIPE
    assert (bench.home / "b" / "plan.json").read_bytes() == saved.read_bytes()


def test_no_older_recipe_stays_in_the_folder(bench: Bench, saved: Path) -> None:
    for source in ("demo.yaml", "p.json"):
        assert srtctl("render", source, "--to", "a").exit_code == 0
    assert yaml.safe_load((bench.home / "a" / "recipe.yaml").read_text()) is None


def test_apply_submits_exactly_the_plan(bench: Bench, saved: Path) -> None:
    """Also when recipe and profile say something else by now; of the profile, where and to which Slurm count."""
    (bench.home / "demo.yaml").write_text("schema: 2\nname: other\n")
    with (bench.home / "srtslurm.yaml").open("a") as profile:
        profile.write("default_partition: other\ngpus_per_node: 4\n")
    result = srtctl("apply", "p.json")
    assert result.exit_code == 0, result.output
    run = bench.runs / "demo-1"
    assert (run / "plan.json").read_bytes() == saved.read_bytes()
    assert "partition" not in (run / "job.sbatch").read_text()
    assert f"SLURM_CONF={bench.fake}/slurm.conf" in bench.asked("sbatch.env").splitlines()
    assert json.loads((run / "run.json").read_text())["recipe"] == str(saved)


def test_the_plan_of_a_run_can_be_applied_again(bench: Bench) -> None:
    run = bench.submit()
    assert srtctl("apply", str(run / "plan.json")).exit_code == 0
    assert (bench.runs / "demo-2" / "plan.json").read_bytes() == (run / "plan.json").read_bytes()


def test_warnings_are_said_again_without_lines_that_may_have_moved(bench: Bench, saved: Path) -> None:
    place = {"file": "demo.yaml", "line": 2, "column": 1}
    edit(saved, warnings=[{"code": "a/b", "severity": "warning", "message": "mind this"} | place])
    assert srtctl("apply", "p.json").stderr.startswith("warning[a/b]: mind this (demo.yaml:2:1)\n1 warning\n")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--set", "name=x"], "--set cannot change it"),
        (["--unset", "frontend"], "--unset cannot change it"),
        (["--allow-unsupported"], "--allow-unsupported cannot change it"),
        (["--set", "name=x", "--unset", "frontend"], "--set and --unset cannot change it"),
    ],
)
@pytest.mark.parametrize("verb", [["plan"], ["render", "--to", "out"], ["apply"]], ids=lambda verb: verb[0])
def test_options_that_change_a_recipe(
    bench: Bench, saved: Path, verb: list[str], options: list[str], words: str
) -> None:
    result = srtctl(*verb, "p.json", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"error: p.json is a saved plan: {words}" in result.stderr
    assert not bench.runs.exists()
    assert not (bench.home / "out").exists()


def test_a_plan_that_was_cut_off(bench: Bench, saved: Path) -> None:
    saved.write_text(saved.read_text()[:400])
    result = srtctl("apply", "p.json")
    assert result.exit_code == 2
    assert "p.json is no complete JSON" in result.stderr
    assert "srtctl plan RECIPE -o json" in result.stderr
    assert not bench.runs.exists()


def test_a_plan_of_something_else(bench: Bench, saved: Path) -> None:
    edit(saved, colour="red")
    result = srtctl("plan", "p.json", "-o", "json")
    assert result.exit_code == 2
    assert [d["path"] for d in json.loads(result.stdout)["diagnostics"]] == ["colour"]
    assert "`colour` is not known to this srtctl" in result.stderr


def test_a_broken_profile_is_said_too(bench: Bench, saved: Path) -> None:
    (bench.home / "srtslurm.yaml").write_text("colour: red\n")
    result = srtctl("apply", "p.json")
    assert result.exit_code == 2
    assert "cluster/unknown-key" in result.stderr


def test_a_recipe_may_be_json(bench: Bench) -> None:
    (bench.home / "demo.json").write_text(json.dumps(yaml.safe_load(RECIPE)))
    assert srtctl("plan", "demo.json", "--set", "name=x").exit_code == 0


def test_a_file_that_is_not_there(bench: Bench) -> None:
    result = srtctl("plan", "gone.json")
    assert result.exit_code == 2
    assert "gone.json does not exist" in result.stderr


def test_no_difference(bench: Bench, saved: Path) -> None:
    result = srtctl("plan", "demo.yaml", "--diff", "p.json")
    assert (result.exit_code, result.stdout) == (0, "no difference: p.json and demo.yaml run the same\n")


def test_a_difference(bench: Bench, saved: Path) -> None:
    """From the other to the recipe: what is only in the other goes."""
    result = srtctl("plan", "demo.yaml", "--set", "roles.agg.args.page-size=32", "--diff", "p.json")
    assert result.exit_code == 2
    assert result.stdout == (
        "--- p.json\n+++ demo.yaml --set roles.agg.args.page-size=32\n\n"
        "commands\n  agg-0.0, agg-0.1 (2)\n    - --page-size 16\n    + --page-size 32\n"
    )


def test_a_difference_as_data(bench: Bench, saved: Path) -> None:
    result = srtctl("plan", "p.json", "--diff", "demo.yaml", "-o", "json")
    assert (result.exit_code, json.loads(result.stdout)) == (
        0,
        {"old": "demo.yaml", "new": "p.json", "equal": True, "changes": []},
    )
    edit(saved, name="other")
    result = srtctl("plan", "p.json", "--diff", "demo.yaml", "-o", "yaml")
    assert result.exit_code == 2
    change = {
        "section": "job",
        "kind": "changed",
        "subjects": [""],
        "edits": [{"old": "name demo", "new": "name other"}],
    }
    assert yaml.safe_load(result.stdout)["changes"] == [change]


def test_a_difference_to_nothing(bench: Bench) -> None:
    result = srtctl("plan", "demo.yaml", "--diff", "gone.yaml")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "gone.yaml does not exist" in result.stderr
