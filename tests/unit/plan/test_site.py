"""Recipe over profile over plain defaults."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import EXAMPLES, build, plan_of

ATTENTION = next(path for path in EXAMPLES if path.stem == "sglang-attention-dp-2n")

MODELS = [
    # what the recipe says, the profile's aliases, what engines get
    ("qwen3-0.6b", {"qwen3-0.6b": "/models/q"}, "/models/q"),
    ("/data/m", {"qwen3-0.6b": "/models/q"}, "/data/m"),
    ("hf:Qwen/Qwen3-0.6B", {}, "Qwen/Qwen3-0.6B"),
    ("hf:Qwen/Qwen3-0.6B", {"hf:Qwen/Qwen3-0.6B": "/models/q"}, "/models/q"),
    ("org/name", {"other": "/x"}, "org/name"),
    ("qwen3-0.6b", {}, "qwen3-0.6b"),
]


@pytest.mark.parametrize(("path", "aliases", "expected"), MODELS)
def test_the_model_path(path: str, aliases: dict[str, str], expected: str) -> None:
    plan = plan_of(ATTENTION, overrides=(f"model.path={path}",), model_paths=aliases, cluster="c")
    assert plan.model.path == expected
    assert all(p.argv[p.argv.index("--model-path") + 1] == expected for w in plan.workers for p in w.processes)


def test_an_unknown_alias_names_the_nearest() -> None:
    result = build(ATTENTION, overrides=("model.path=qwen3-0.6",), model_paths={"qwen3-0.6b": "/models/q"})
    (error,) = [d for d in result.diagnostics if d.severity == "error"]
    assert (error.code, error.path, error.hint) == ("plan/model-alias", "model.path", "did you mean `qwen3-0.6b`?")


SLURM = [
    # profile, overrides, (account, partition, time limit)
    ({}, (), (None, None, None)),
    ({"default_account": "a", "default_partition": "p", "default_time_limit": "1:00:00"}, (), ("a", "p", "1:00:00")),
    (
        {"default_account": "a", "default_partition": "p"},
        ("slurm={account: b, partition: q, time_limit: '2:00:00'}",),
        ("b", "q", "2:00:00"),
    ),
]


@pytest.mark.parametrize(("profile", "overrides", "expected"), SLURM)
def test_the_slurm_request(
    profile: dict[str, Any], overrides: tuple[str, ...], expected: tuple[str | None, ...]
) -> None:
    slurm = plan_of(ATTENTION, overrides=overrides, **profile).slurm
    assert (slurm.account, slurm.partition, slurm.time_limit) == expected


def test_the_recipes_directives_and_environment_win() -> None:
    plan = plan_of(
        ATTENTION,
        overrides=("sbatch_directives={constraint: ib, comment: mine}", "environment={A: recipe, B: b}"),
        default_sbatch_directives={"comment": "theirs", "reservation": "r"},
        env={"A": "profile", "C": "c"},
    )
    assert plan.slurm.directives == {"comment": "mine", "reservation": "r", "constraint": "ib"}
    assert plan.environment == {"A": "recipe", "B": "b", "C": "c"}


def test_the_variable_that_picks_gpus_is_the_profiles() -> None:
    plan = plan_of(ATTENTION, visible_devices_env="ROCR_VISIBLE_DEVICES")
    assert {p.env["ROCR_VISIBLE_DEVICES"] for w in plan.workers for p in w.processes} == {"0"}
    assert all("CUDA_VISIBLE_DEVICES" not in p.env for w in plan.workers for p in w.processes)


def test_what_is_assumed_is_said_once() -> None:
    result = build(ATTENTION, unset=("resources.gpus_per_node",))
    assumed = [d.message for d in result.diagnostics if d.code == "plan/assumed"]
    assert len(assumed) == 1
    assert "8 GPUs a node" in assumed[0]
