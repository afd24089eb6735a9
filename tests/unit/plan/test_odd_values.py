"""Whatever stands at a key of a recipe, planning gives a plan or says why not; it never raises."""

from __future__ import annotations

from pathlib import Path

import pytest

from srtctl.cluster.load import load_cluster
from srtctl.plan.build import build_plan
from srtctl.plan.serial import plan_json
from srtctl.reading.document import dotted
from srtctl.recipe.load import load_recipe
from tests.support import EXAMPLES

ODD = [
    "", "true", "false", "0", "-1", "1.5", "3", "x", "''", "'8'", "[]", "[1]", "[[]]", "{}", "{a: 1}", "{a: {b: [1]}}",
    "99999999999999999999", "1e400", ".nan", "2026-01-01",
]  # fmt: skip
FLAGS = [
    "dp", "pp", "tp", "port", "grpc-port", "nccl-port", "disaggregation-bootstrap-port", "kv-events-config",
    "enable-dp-attention", "incremental-streaming-output", "disaggregation-mode", "served-model-name", "other",
]  # fmt: skip
OTHERS = [
    "frontend.args.x", "frontend.type", "frontend.placement", "frontend.placement.node", "frontend.env", "infra",
    "infra.placement.node", "benchmark.placement.node", "resources.port_offset", "resources.spread_workers", "dynamo",
    "dynamo.sidecar", "dynamo.sidecar_args", "dynamo.event_plane", "checks", "checks.kv_events", "environment",
    "environment.A", "sbatch_directives", "sbatch_directives.mem", "health_check", "engine.x", "slurm.time_limit",
]  # fmt: skip
CASES = [path for path in EXAMPLES if path.stem in ("sglang-attention-dp-2n", "sglang-colocated-1n")]


def paths(recipe: Path) -> list[str]:
    """Every path written in the recipe, and more that could be."""
    written = [path for path in load_recipe(recipe).document.places if path]
    roles = [dotted(path) for path in written if len(path) == 2 and path[0] == "roles"]
    more = [f"{role}.args.{flag}" for role in roles for flag in FLAGS] + [f"{role}.env.A" for role in roles]
    return list(dict.fromkeys([dotted(path) for path in written] + more + OTHERS))


@pytest.mark.parametrize("recipe", CASES, ids=lambda path: path.stem)
@pytest.mark.parametrize("value", ODD)
def test_an_odd_value_anywhere(recipe: Path, value: str) -> None:
    cluster = load_cluster(None)
    for path in paths(recipe):
        result = build_plan(load_recipe(recipe, overrides=[f"{path}={value}"]), cluster)
        if result.plan is None:
            assert [d.message for d in result.diagnostics if d.severity == "error"], path
            assert all(d.hint for d in result.diagnostics if d.severity == "error" and "unknown" in d.code), path
        else:
            assert plan_json(result.plan)


def test_there_are_recipes_to_change() -> None:
    assert len(CASES) == 2
