"""What `srtctl explain` says applies is what the plan takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from srtctl.cluster.load import load_cluster
from srtctl.plan.build import build_plan
from srtctl.plan.model import Plan
from srtctl.plan.origin import settings
from srtctl.recipe.load import load_recipe

RECIPE = """\
schema: 2
name: demo
model: {path: /models/m, container: c}
engine: sglang
roles: {agg: {nodes: 2, workers: 2, gpus: 2, args: {tp: 2}}}
"""


def sidecar_deadline(plan: Plan) -> Any:
    sidecar = plan.workers[0].processes[0].sidecar
    return sidecar and int(sidecar.argv[sidecar.argv.index("--grpc-startup-deadline-secs") + 1])


TABLE: list[tuple[str, Any, str, str, Any]] = [
    # key, what the plan makes of it, the recipe's line, the profile's, what is found in the plan where nobody sets it
    ("slurm.account", lambda p: p.slurm.account, "slurm: {account: r}", "default_account: c", None),
    ("slurm.partition", lambda p: p.slurm.partition, "slurm: {partition: r}", "default_partition: c", None),
    ("slurm.time_limit", lambda p: p.slurm.time_limit, "slurm: {time_limit: '10'}", "default_time_limit: '20'", None),
    ("resources.gpus_per_node", lambda p: p.gpus_per_node, "resources: {gpus_per_node: 2}", "gpus_per_node: 4", 8),
    ("environment.A", lambda p: p.environment.get("A"), "environment: {A: r}", "env: {A: c}", None),
    (
        "sbatch_directives.mem",
        lambda p: p.slurm.directives.get("mem"),
        "sbatch_directives: {mem: r}",
        "default_sbatch_directives: {mem: c}",
        None,
    ),
]


@pytest.mark.parametrize(("key", "planned", "in_recipe", "in_profile", "otherwise"), TABLE, ids=[t[0] for t in TABLE])
@pytest.mark.parametrize("recipe_sets", [True, False])
@pytest.mark.parametrize("profile_sets", [True, False])
def test_recipe_over_profile(
    tmp_path: Path,
    key: str,
    planned: Any,
    in_recipe: str,
    in_profile: str,
    otherwise: Any,
    recipe_sets: bool,
    profile_sets: bool,
) -> None:
    recipe, profile = tmp_path / "r.yaml", tmp_path / "srtslurm.yaml"
    recipe.write_text(RECIPE + in_recipe * recipe_sets + "\n")
    profile.write_text("cluster: here\n" + in_profile * profile_sets + "\n")
    loaded, cluster = load_recipe(recipe), load_cluster(profile)
    plan = build_plan(loaded, cluster).plan
    assert plan is not None
    found = settings(key, loaded.document, cluster.document)
    assert [item.effect for item in found] == ["applies", "unused"][: recipe_sets + profile_sets]
    assert planned(plan) == (found[0].value if found else otherwise)
    if found:
        assert found[0].span.file == str(recipe if recipe_sets else profile)


@pytest.mark.parametrize(
    ("own", "default", "expected"),
    [("{startup_timeout: 5}", 7, 5), ("true", 7, 7), ("{}", 7, 7)],
)
def test_sidecar_defaults(tmp_path: Path, own: str, default: int, expected: int) -> None:
    recipe = tmp_path / "r.yaml"
    recipe.write_text(
        RECIPE.replace("args:", f"sidecar: {own}, args:") + f"dynamo: {{sidecar_startup_timeout: {default}}}\n"
    )
    loaded = load_recipe(recipe)
    plan = build_plan(loaded, load_cluster(None)).plan
    assert plan is not None
    assert sidecar_deadline(plan) == expected
    found = settings("roles.agg.sidecar.startup_timeout", loaded.document, None)
    assert [item.value for item in found if item.effect == "applies"] == [expected]


@pytest.mark.parametrize(("own", "values"), [("true", [True]), ("false", [False]), ("{}", [])])
def test_a_short_form_sets_the_keys_below_it(tmp_path: Path, own: str, values: list[bool]) -> None:
    recipe = tmp_path / "r.yaml"
    recipe.write_text(RECIPE.replace("args:", f"sidecar: {own}, args:"))
    found = settings("roles.agg.sidecar.startup_timeout", load_recipe(recipe).document, None)
    assert [(item.path, item.value) for item in found] == [("roles.agg.sidecar", value) for value in values]
