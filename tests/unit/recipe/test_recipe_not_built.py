"""What is known but not built: an error with its reason, or a warning and left out."""

from __future__ import annotations

from pathlib import Path

import pytest
from recipe_texts import changed, marked

from srtctl.recipe.known import MOVED, NOT_BUILT
from srtctl.recipe.load import load_recipe
from srtctl.recipe.model import Recipe

# path, what of the happy recipe is replaced, by what
CASES = [
    ("roles.agg.engine", "    workers: 1", "    «engine: vllm"),
    ("roles.agg.container", "    workers: 1", "    «container: x"),
    ("roles.agg.critical", "    workers: 1", "    «critical: false"),
    ("roles.agg.restart", "    workers: 1", "    «restart: 3"),
    ("resources.het_jobs", "gpus_per_node: 1", "gpus_per_node: 1, het_jobs: «true"),
    ("dynamo.sidecar_port", "", "dynamo: {«sidecar_port: 9000}"),
    ("post_eval", "", "«post_eval: {command: x}"),
    ("reporting", "", "«reporting: {status: {}}"),
    ("profiling.type", "", "profiling: {type: «torch, prefill: {start_step: 10}}"),
    ("profiling.type", "", "profiling: {type: «nsys}"),
    ("telemetry", "", "«telemetry: {enabled: true}"),
    ("observability", "", "«observability: {scrape_metrics: true}"),
]
IDS = [f"{path}-{new[-12:]}" for path, _, new in CASES]


@pytest.mark.parametrize(("dotted", "old", "new"), CASES, ids=IDS)
def test_an_error_with_its_reason(tmp_path: Path, dotted: str, old: str, new: str) -> None:
    text, place = marked(changed(old, new))
    path = tmp_path / "r.yaml"
    path.write_text(text)
    loaded = load_recipe(path)
    assert loaded.recipe is None
    [found] = loaded.diagnostics
    assert (found.code, found.path, str(found.span)) == ("recipe/not-built", dotted, f"{path}:{place}")
    assert f"`{dotted}`" in found.message
    assert "known but not built yet: " in found.message
    assert "--allow-unsupported" in found.hint


@pytest.mark.parametrize(("dotted", "old", "new"), CASES, ids=IDS)
def test_a_warning_and_left_out_when_allowed(tmp_path: Path, dotted: str, old: str, new: str) -> None:
    text, _ = marked(changed(old, new))
    path = tmp_path / "r.yaml"
    path.write_text(text)
    loaded = load_recipe(path, allow_unsupported=True)
    [found] = loaded.diagnostics
    assert (found.code, found.path, found.severity) == ("recipe/not-built", dotted, "warning")
    assert "left out" in found.message
    assert isinstance(loaded.recipe, Recipe)
    assert loaded.recipe.frontend.type == "dynamo"
    assert loaded.recipe.benchmark.type == "manual"


@pytest.mark.parametrize("key", ["post_eval", "reporting", "telemetry", "observability"])
@pytest.mark.parametrize("value", ["{}", "null", "", "{enabled: false}", "{enabled: false, dcgm: {port: 9400}}"])
def test_what_is_switched_off_is_accepted(tmp_path: Path, key: str, value: str) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(changed("", f"{key}: {value}"))
    assert load_recipe(path).diagnostics == []


@pytest.mark.parametrize("value", ["{}", "null", "{type: none}", "{type: none, prefill: {start_step: 10}}"])
def test_no_profiler_is_accepted(tmp_path: Path, value: str) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(changed("", f"profiling: {value}"))
    assert load_recipe(path).diagnostics == []


def test_every_row_is_tested() -> None:
    tested = {dotted for dotted, _, _ in CASES}
    rows = {row.pattern for row in NOT_BUILT}
    assert {row for row in rows if row.replace("*", "agg", 1) not in tested and row not in tested} == set()


def test_no_built_key_is_listed_as_moved() -> None:
    for old in MOVED:
        section, _, key = old.partition(".")
        field = Recipe.model_fields.get(section)
        assert field is None or key not in getattr(field.annotation, "model_fields", {})
