"""Write schemas/*.schema.json from the models: `python scripts/write_schemas.py` (with src on the path)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from srtctl.cluster.model import ClusterProfile
from srtctl.recipe.model import Recipe

FOLDER = Path(__file__).parent.parent / "schemas"
SCHEMAS: dict[str, tuple[type[BaseModel], str]] = {
    "recipe.schema.json": (Recipe, "srtctl recipe, layout v2"),
    "cluster.schema.json": (ClusterProfile, "srtctl cluster profile (srtslurm.yaml)"),
}


def schema_text(model: type[BaseModel], title: str) -> str:
    """The JSON Schema of what a user may write for `model`, as it lies in schemas/."""
    body = _tidy(model.model_json_schema(by_alias=True, mode="validation"))
    facts = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    return json.dumps(facts | body, indent=2, ensure_ascii=False) + "\n"


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
    for name, (model, title) in SCHEMAS.items():
        (FOLDER / name).write_text(schema_text(model, title))


if __name__ == "__main__":
    main()
