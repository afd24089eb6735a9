"""The JSON Schemas in schemas/ are those of the models, and agree with the loader."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import jsonschema
import pytest
from recipe_texts import DISAGGREGATED, HAPPY, changed

from srtctl.reading.document import parse_yaml
from srtctl.recipe.load import load_recipe

ROOT = Path(__file__).parents[3]


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("write_schemas", ROOT / "scripts" / "write_schemas.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


WRITER = script()


@pytest.mark.parametrize("name", sorted(WRITER.SCHEMAS))
def test_no_drift(name: str) -> None:
    written = (ROOT / "schemas" / name).read_text()
    assert written == WRITER.schema_text(*WRITER.SCHEMAS[name]), "run `python scripts/write_schemas.py`"


def test_nothing_else_lies_in_the_folder() -> None:
    others = {path.name for path in (ROOT / "schemas").iterdir()} - set(WRITER.SCHEMAS)
    assert others <= {"plan.schema.json"}


def schema(name: str) -> jsonschema.Draft202012Validator:
    parsed = parse_yaml((ROOT / "schemas" / name).read_text(), name).data
    jsonschema.Draft202012Validator.check_schema(parsed)
    return jsonschema.Draft202012Validator(parsed)


@pytest.mark.parametrize(
    "text",
    [HAPPY, DISAGGREGATED, HAPPY + "checks: false\n", changed("engine: sglang", "engine: {type: sglang, knob: 1}")],
)
def test_good_recipes_are_valid(text: str) -> None:
    assert list(schema("recipe.schema.json").iter_errors(parse_yaml(text, "f").data)) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", "frontnd: {}"),
        ("    nodes: 2", "    nodes: 0"),
        ("    workers: 1", "    env: {A-B: x}"),
        ("    workers: 1", "    env: {A: true}"),
        ("page-size", "--page-size"),
        ("engine: sglang", "engine: tgi"),
        ("engine: sglang", "engine: {knob: 1}"),
        ("sidecar: true", "sidecar: {kind: x}"),
        ("", "checks: {registration: maybe}"),
        ("", "slurm: {time_limit: 2h}"),
        ("", "dynamo: {install: pypi}"),
    ],
)
def test_bad_recipes_are_not(tmp_path: Path, old: str, new: str) -> None:
    text = changed(old, new)
    assert list(schema("recipe.schema.json").iter_errors(parse_yaml(text, "f").data)) != []
    path = tmp_path / "r.yaml"
    path.write_text(text)
    assert load_recipe(path).recipe is None


def test_every_key_is_documented() -> None:
    for name in WRITER.SCHEMAS:
        whole = parse_yaml((ROOT / "schemas" / name).read_text(), name).data
        for model in (whole, *whole.get("$defs", {}).values()):
            bare = [key for key, facts in model.get("properties", {}).items() if not facts.get("description")]
            assert bare == [], model.get("description")
