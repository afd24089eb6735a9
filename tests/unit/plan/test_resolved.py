"""The recipe that a bundle keeps is the one it was made from: planning it again gives an equal plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from srtctl.recipe.dump import dump_resolved
from srtctl.recipe.load import load_recipe
from tests.support import EXAMPLES, example_id, plan_of

PROFILE = {"nodes_share_host": True, "default_partition": "gpu", "env": {"A": "b"}, "gpus_per_node": 8}


@pytest.mark.parametrize("profile", [{}, PROFILE], ids=["no profile", "profile"])
@pytest.mark.parametrize("overrides", [(), ("name=other", "environment.X=1.50")], ids=["as it is", "overridden"])
@pytest.mark.parametrize("example", EXAMPLES, ids=example_id)
def test_the_resolved_recipe_plans_the_same(
    example: Path, overrides: tuple[str, ...], profile: dict[str, Any], tmp_path: Path
) -> None:
    recipe = load_recipe(example, overrides=overrides).recipe
    assert recipe is not None
    resolved = tmp_path / "recipe.yaml"
    resolved.write_text(dump_resolved(recipe))
    again, first = plan_of(resolved, **profile), plan_of(example, overrides=overrides, **profile)
    # Where the recipe lies, and so where its warnings point to, is all that may differ.
    assert replace(again, source="", warnings=()) == replace(first, source="", warnings=())
    said = [[(d.code, d.message, d.path, d.hint) for d in plan.warnings] for plan in (again, first)]
    assert said[0] == said[1]
