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
    ("roles.agg.srun_options", "    workers: 1", "    «srun_options: {mem: 0}"),
    ("roles.agg.sidecar.kind", "sidecar: true", "sidecar: {«kind: rust}"),
    ("resources.het_jobs", "gpus_per_node: 1", "gpus_per_node: 1, het_jobs: «true"),
    ("dynamo.install", "", "dynamo: {install: «true}"),
    ("dynamo.source", "", "dynamo: {«source: {pypi: 1.6.1}}"),
    ("dynamo.direct_dispatch", "", "dynamo: {«direct_dispatch: true}"),
    ("dynamo.sidecar_port", "", "dynamo: {«sidecar_port: 9000}"),
    ("dynamo.sidecar_binary", "", "dynamo: {«sidecar_binary: /x}"),
    ("frontend.enable_multiple_frontends", "  type: dynamo", "  enable_multiple_frontends: «true"),
    ("frontend.num_additional_frontends", "  type: dynamo", "  «num_additional_frontends: 2"),
    ("frontend.nginx_container", "  type: dynamo", "  «nginx_container: nginx"),
    ("benchmark.type", "", "benchmark: {type: «sa-bench, isl: 1024, osl: 1024, concurrencies: [1]}"),
    ("benchmark.isl", "", "benchmark: {«isl: 1024}"),
    ("container_mounts", "", "«container_mounts: [a]"),
    ("extra_mount", "", "«extra_mount: [a]"),
    ("srun_options", "", "«srun_options: {mem: 0}"),
    ("setup_script", "", "«setup_script: x.sh"),
    ("post_eval", "", "«post_eval: {}"),
    ("identity", "", "«identity: {}"),
    ("reporting", "", "«reporting: {}"),
    ("profiling", "", "«profiling: {}"),
    ("telemetry", "", "«telemetry: {}"),
    ("observability", "", "«observability: {}"),
    ("services", "", "«services: [{name: x}]"),
    ("enable_config_dump", "", "«enable_config_dump: false"),
    ("infra.nats_max_payload_mb", "", "infra: {«nats_max_payload_mb: 32}"),
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


@pytest.mark.parametrize("engine", ["mocker"])
@pytest.mark.parametrize("form", ["engine: «{}", "engine: {{type: «{}, knob: 1}}"])
@pytest.mark.parametrize("allow", [False, True])
def test_an_engine_cannot_be_left_out(tmp_path: Path, engine: str, form: str, allow: bool) -> None:
    text, place = marked(changed("engine: sglang", form.format(engine)))
    path = tmp_path / "r.yaml"
    path.write_text(text)
    loaded = load_recipe(path, allow_unsupported=allow)
    assert loaded.recipe is None
    [found] = loaded.diagnostics
    assert (found.code, str(found.span), found.severity) == ("recipe/not-built", f"{path}:{place}", "error")
    assert engine in found.message
    assert found.hint == "use another engine"


def test_every_row_is_tested() -> None:
    tested = {dotted for dotted, _, _ in CASES} | {"engine", "engine.type"}
    rows = {row.pattern for row in NOT_BUILT if not row.pattern.startswith("benchmark.")}
    assert {row for row in rows if row.replace("*", "agg", 1) not in tested and row not in tested} == {
        "frontend.nginx_*"
    }


def test_no_built_key_is_listed_as_moved() -> None:
    for old in MOVED:
        section, _, key = old.partition(".")
        field = Recipe.model_fields.get(section)
        assert field is None or key not in getattr(field.annotation, "model_fields", {})
