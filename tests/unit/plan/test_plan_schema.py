"""schemas/plan.schema.json describes what `srtctl plan -o json` prints (its drift: test_recipe_schema.py)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from plans import disaggregated
from test_serial import EDITS, WARNINGS

from srtctl.plan.serial import plan_dict, plan_json
from tests.support import EXAMPLES, REPOSITORY, example_id, plan_of

SCHEMA = json.loads((REPOSITORY / "schemas" / "plan.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("example", EXAMPLES, ids=example_id)
def test_every_example_is_valid(example: Path) -> None:
    assert [e.message for e in VALIDATOR.iter_errors(json.loads(plan_json(plan_of(example))))] == []


def test_a_large_plan_with_warnings_is_valid(tmp_path: Path) -> None:
    plan = replace(disaggregated(tmp_path, 16), warnings=WARNINGS, endpoint=None)
    assert [e.message for e in VALIDATOR.iter_errors(plan_dict(plan))] == []


SHAPE = [e for e in EDITS[:15] if e[0] not in ("not a number", "float for a number")]  # JSON Schema: 2.0 is an integer


@pytest.mark.parametrize("edit", [e[1] for e in SHAPE], ids=[e[0] for e in SHAPE])
def test_it_refuses_what_the_reader_refuses(edit: Callable[[dict[str, Any]], object]) -> None:
    data = plan_dict(plan_of(EXAMPLES[0]))
    edit(data)
    assert not VALIDATOR.is_valid(data)
