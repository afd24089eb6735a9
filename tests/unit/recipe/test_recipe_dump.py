"""The recipe as resolved reads back equal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recipe_texts import DISAGGREGATED, HAPPY

from srtctl.reading.document import parse_yaml
from srtctl.recipe.dump import dump_resolved
from srtctl.recipe.load import load_recipe
from srtctl.recipe.model import Recipe


@pytest.mark.parametrize("text", [HAPPY, DISAGGREGATED, HAPPY + "checks: false\n"])
@pytest.mark.parametrize(
    "overrides", [[], ["frontend.args.x={a: [1, 2]}", "environment={A: '1e5', B: '0o17', C: 'yes', D: '08'}"]]
)
def test_round_trip(tmp_path: Path, text: str, overrides: list[str]) -> None:
    (tmp_path / "a.yaml").write_text(text)
    first = load_recipe(tmp_path / "a.yaml", overrides=overrides)
    assert first.recipe is not None
    dumped = dump_resolved(first.recipe)
    (tmp_path / "b.yaml").write_text(dumped)
    second = load_recipe(tmp_path / "b.yaml")
    assert second.diagnostics == []
    assert second.recipe == first.recipe
    assert dump_resolved(first.recipe) == dumped


def test_no_default_is_written_and_short_forms_stay_short(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(HAPPY)
    recipe = load_recipe(path).recipe
    assert recipe is not None
    assert list(parse_yaml(dump_resolved(recipe), "f").data) == [
        "schema",
        "name",
        "model",
        "resources",
        "engine",
        "roles",
        "frontend",
    ]
    agg = parse_yaml(dump_resolved(recipe), "f").data["roles"]["agg"]
    assert (agg["kv_events"], agg["sidecar"], "workers" in agg) == (True, True, False)


values = st.one_of(
    st.text(max_size=8), st.text(alphabet="0123456789eE+-._xo", max_size=6), st.booleans(), st.integers(), st.none()
)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.from_regex(r"[a-z][a-z-]{0,6}", fullmatch=True), values, max_size=5))
def test_whatever_the_arguments_are(args: dict[str, Any]) -> None:
    recipe = Recipe.model_validate(
        {
            "schema": 2,
            "name": "x",
            "model": {"path": "m", "container": "c"},
            "engine": "sglang",
            "roles": {"agg": {"nodes": 1, "args": args}},
        }
    )
    document = parse_yaml(dump_resolved(recipe), "f")
    assert document.diagnostics == ()
    assert document.data["roles"]["agg"].get("args", {}) == args
    assert yaml.safe_load(dump_resolved(recipe)) == document.data
