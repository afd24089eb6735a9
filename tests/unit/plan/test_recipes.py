"""recipes/ and examples/: each plans without a finding on a cluster that names its model and image, and is in the table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support import EXAMPLES, REPOSITORY, build

FOLDER = REPOSITORY / "recipes"
RECIPES = sorted(FOLDER.rglob("*.yaml"))

MODELS = ("qwen3-0.6b", "deepseek-r1-fp8")
IMAGES = ("sglang", "vllm", "trtllm")
#: A cluster as the recipes expect one: it has their model and their images.
CLUSTER: dict[str, Any] = {
    "gpus_per_node": 8,
    "container_runtime": "pyxis",
    "model_paths": {name: f"/models/{name}" for name in MODELS},
    "containers": {name: f"/images/{name}.sqsh" for name in IMAGES},
}


def name_of(path: Path) -> str:
    return str(path.relative_to(REPOSITORY).with_suffix(""))


@pytest.mark.parametrize("path", [*RECIPES, *EXAMPLES], ids=name_of)
def test_it_plans_without_a_finding(path: Path) -> None:
    result = build(path, **CLUSTER)
    assert [f"{found.code}: {found.message}" for found in result.diagnostics] == []


@pytest.mark.parametrize("path", RECIPES, ids=name_of)
def test_it_says_what_it_is_for_and_what_to_edit(path: Path) -> None:
    comment = " ".join(line.removeprefix("#").strip() for line in path.read_text().partition("schema:")[0].splitlines())
    assert "Edit before it runs: `model.path`" in comment
    assert "model.container" in comment


def test_the_table_lists_every_recipe_with_its_nodes() -> None:
    rows = re.findall(r"^\| `(.*?)` \| .*? \| (\d+) \W (\d+) \|", (FOLDER / "README.md").read_text(), re.MULTILINE)
    plans = {str(path.relative_to(FOLDER).with_suffix("")): build(path, **CLUSTER).plan for path in RECIPES}
    assert {name: (int(nodes), int(gpus)) for name, nodes, gpus in rows} == {
        name: (plan.nodes, plan.gpus_per_node) if plan else None for name, plan in plans.items()
    }
    assert [name for name, _, _ in rows] != []
