"""What a good recipe means."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError
from recipe_texts import DISAGGREGATED, HAPPY, changed

from srtctl.diagnostics import Span
from srtctl.recipe.inputs import CHECK_NAMES
from srtctl.recipe.load import LoadedRecipe, load_recipe
from srtctl.recipe.model import CheckSetting, KvEvents, Recipe, Sidecar


@pytest.fixture
def load(tmp_path: Path):
    def run(text: str, **options: object) -> LoadedRecipe:
        path = tmp_path / "r.yaml"
        path.write_text(text)
        return load_recipe(path, **options)  # type: ignore[arg-type]

    return run


def good(loaded: LoadedRecipe) -> Recipe:
    assert loaded.diagnostics == []
    assert loaded.recipe is not None
    return loaded.recipe


def test_the_happy_path(load) -> None:
    recipe = good(load(HAPPY))
    assert recipe.name == "qwen3-attention-dp"
    assert (recipe.model.path, recipe.model.container, recipe.model.precision) == ("qwen3-0.6b", "sglang", None)
    assert (recipe.resources.gpus_per_node, recipe.resources.spread_workers) == (1, False)
    assert (recipe.slurm.account, recipe.slurm.partition, recipe.slurm.time_limit) == (None, None, None)
    assert (recipe.engine.type, recipe.engine.knobs) == ("sglang", {})
    assert list(recipe.roles) == ["agg"]
    agg = recipe.roles["agg"]
    assert (agg.nodes, agg.workers, agg.gpus, agg.env) == (2, 1, 2, {})
    assert agg.args["enable-dp-attention"] is True
    assert agg.kv_events == KvEvents(publisher="zmq", topic="kv-events")
    assert agg.sidecar == Sidecar(args={}, startup_timeout=None)
    assert (recipe.dynamo.request_plane, recipe.dynamo.event_plane) == ("tcp", "zmq")
    assert (recipe.frontend.type, recipe.frontend.args, recipe.frontend.env) == ("dynamo", {"router-mode": "kv"}, {})
    assert (recipe.health_check.max_attempts, recipe.health_check.interval_seconds) == (180, 10)
    assert recipe.health_check.seconds == 1800
    assert list(recipe.checks) == list(CHECK_NAMES)
    assert all((s.enabled, s.on_failure, s.timeout) == (True, "fail", None) for s in recipe.checks.values())


def test_the_long_forms(load) -> None:
    recipe = good(load(DISAGGREGATED))
    assert list(recipe.roles) == ["prefill", "decode"]
    prefill, decode = recipe.roles.values()
    assert decode.nodes == "colocate"
    assert decode.kv_events == KvEvents(topic="mine")
    assert prefill.env == {"RATIO": "1.50", "MASK": "0x10", "ON": "yes", "COUNT": "8"}
    assert prefill.args == {"tp-size": 2, "json": {"a": [1, None]}, "switch": None}
    assert recipe.engine.knobs == {"knob": 3}
    assert recipe.environment == {"PORT": "1e3"}
    assert recipe.sbatch_directives == {"mem": "0", "requeue": None, "comment": "a b"}
    assert recipe.slurm.time_limit == "1-00:30:00"
    assert {n: s for n, s in recipe.checks.items() if n in ("registration", "rank_routing", "kv_events")} == {
        "registration": CheckSetting(timeout=5),
        "rank_routing": CheckSetting(on_failure="warn"),
        "kv_events": CheckSetting(enabled=False),
    }


@pytest.mark.parametrize(
    ("own", "sidecar"),
    [
        ("", Sidecar(args={"a": 1, "b": ["x", "y"]}, startup_timeout=7)),
        ("sidecar: null", Sidecar(args={"a": 1, "b": ["x", "y"]}, startup_timeout=7)),
        ("sidecar: true", Sidecar(args={"a": 1, "b": ["x", "y"]}, startup_timeout=7)),
        ("sidecar: {startup_timeout: 9}", Sidecar(args={"a": 1, "b": ["x", "y"]}, startup_timeout=9)),
        ("sidecar: {args: {a: 2, c: 3}}", Sidecar(args={"a": 2, "b": ["x", "y"], "c": 3}, startup_timeout=7)),
        ("sidecar: {args: [--x, '1']}", Sidecar(args=["--x", "1"], startup_timeout=7)),
        ("sidecar: false", None),
    ],
)
def test_sidecar_defaults_come_from_dynamo(load, own: str, sidecar: Sidecar | None) -> None:
    recipe = good(load(changed("    workers: 2\n", f"    workers: 2\n    {own}\n", DISAGGREGATED)))
    assert recipe.roles["prefill"].sidecar == sidecar
    assert recipe.roles["decode"].sidecar is None


def test_a_flag_in_the_other_spelling_replaces_the_default_too(load) -> None:
    text = changed("sidecar_args: {a: 1, b: [x, y]}", "sidecar_args: {log_level: a, x: 1}", DISAGGREGATED)
    text = changed("    workers: 2\n", "    workers: 2\n    sidecar: {args: {log-level: b}}\n", text)
    sidecar = good(load(text)).roles["prefill"].sidecar
    assert sidecar is not None
    assert sidecar.args == {"x": 1, "log-level": "b"}


def test_without_a_default_there_is_no_sidecar(load) -> None:
    assert good(load(changed("    sidecar: true\n", ""))).roles["agg"].sidecar is None


@pytest.mark.parametrize(("checks", "enabled"), [("false", False), ("true", True), ("{}", True)])
def test_all_checks_at_once(load, checks: str, enabled: bool) -> None:
    recipe = good(load(HAPPY + f"checks: {checks}\n"))
    assert [setting.enabled for setting in recipe.checks.values()] == [enabled] * len(CHECK_NAMES)


@pytest.mark.parametrize("value", ["30", "30:00", "00:30:00", "100:00:00", "1-0", "1-00:30", "2-12:00:00", "UNLIMITED"])
def test_time_limits_slurm_takes(load, value: str) -> None:
    assert good(load(HAPPY + f"slurm: {{time_limit: '{value}'}}\n")).slurm.time_limit == value


def test_what_is_accepted_because_it_asks_for_nothing(load) -> None:
    text = changed("{gpus_per_node: 1}", "{gpus_per_node: 1, het_jobs: false}")
    good(load(text + "dynamo: {install: false}\nbenchmark: {type: manual}\n"))


def test_a_recipe_is_frozen(load) -> None:
    recipe = good(load(HAPPY))
    with pytest.raises(ValidationError, match="frozen"):
        recipe.name = "other"


def test_spans_by_dotted_path(load, tmp_path: Path) -> None:
    loaded = load(HAPPY)
    file = str(tmp_path / "r.yaml")
    assert loaded.span("roles.agg.nodes") == Span(file, 9, 12, 13)
    assert loaded.span("roles.agg.args.page-size", key=True) == Span(file, 14, 123, 132)
    assert loaded.span("roles.agg.args.nothing") == Span(file, 14, 5, 9)
    assert loaded.span("dynamo.sidecar") == Span(file, 2, 1)
