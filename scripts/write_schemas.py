"""Write schemas/*.schema.json from the models: `python scripts/write_schemas.py` (with src on the path)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from srtctl.cluster.model import ClusterProfile
from srtctl.plan.schema import plan_schema
from srtctl.recipe.model import Recipe

FOLDER = Path(__file__).parent.parent / "schemas"
SCHEMAS: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "recipe.schema.json": (lambda: _user_schema(Recipe), "srtctl recipe, layout v2"),
    "cluster.schema.json": (lambda: _user_schema(ClusterProfile), "srtctl cluster profile (srtslurm.yaml)"),
    "plan.schema.json": (plan_schema, "srtctl plan.json, version 1"),
}


def schema_text(body: Callable[[], dict[str, Any]], title: str) -> str:
    """A JSON Schema as it lies in schemas/."""
    facts = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    return json.dumps(facts | body(), indent=2, ensure_ascii=False) + "\n"


def _user_schema(model: type[BaseModel]) -> dict[str, Any]:
    """What a user may write for `model`."""
    body: dict[str, Any] = _tidy(model.model_json_schema(by_alias=True, mode="validation"))
    return body


def _tidy(node: Any, names: bool = False) -> Any:
    """`node` without pydantic's titles, which only repeat the key, and with tables closed to names that do not fit.

    `names`: the keys of `node` are names of properties, not words of JSON Schema.
    """
    if isinstance(node, list):
        return [_tidy(item) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {key: value for key, value in node.items() if names or key not in ("title", "propertyNames")}
    if not names and "patternProperties" in node:
        kept["additionalProperties"] = False
    return {key: _tidy(value, not names and key in ("properties", "$defs")) for key, value in kept.items()}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, (body, title) in SCHEMAS.items():
        (FOLDER / name).write_text(schema_text(body, title))


if __name__ == "__main__":
    main()
