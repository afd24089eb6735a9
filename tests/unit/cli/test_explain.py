"""`srtctl explain`: what a key means, and where its value comes from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from srtctl.cli.app import app
from srtctl.cluster.model import ClusterProfile
from srtctl.plan.explain import UnknownFieldError, explain
from srtctl.plan.origin import FALLBACKS
from srtctl.reading.fields import known_keys
from srtctl.recipe.model import Recipe

RECIPE = """\
schema: 2
name: demo
model: {path: /models/tiny, container: none}
engine: sglang
dynamo: {sidecar: true, sidecar_startup_timeout: 600}
environment: {A: recipe, B: 0x10}
roles:
  agg:
    nodes: 2
    kv_events: true
    env: {A: role}
    args: {tp-size: 2, verbose: null}
"""
PROFILE = "cluster: here\ndefault_account: us\nenv: {A: site, C: site}\n"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("SRTCTL_CLUSTER", "SRTCTL_SANDBOX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("SRTCTL_DATA_DIR", str(tmp_path / "data"))
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    (home / "r.yaml").write_text(RECIPE)
    (home / "srtslurm.yaml").write_text(PROFILE)
    return home


def run(*argv: str) -> Any:
    return CliRunner().invoke(app, ["explain", *argv])


def test_all_of_a_key() -> None:
    result = run("roles.decode.kv_events")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        "roles.decode.kv_events\n"
        "  Publish KV-cache events: true, false, or a mapping of `publisher` and `topic`.\n"
        "  type      true, false or a mapping\n"
        "  default   not set\n"
        "  example   true\n"
        "  example   {topic: kv-events}\n"
        "  also      `--set roles.decode.kv_events=VALUE` wins over the file\n"
        "  keys\n"
        "    publisher  How events are published: `zmq`.\n"
        "    topic      ZMQ topic of the events.\n"
    )


def test_without_a_field_all_top_level_keys() -> None:
    lines = run().stdout.splitlines()
    named = [line.split()[0] for line in lines if line.startswith("    ")]
    assert named[: len(known_keys(Recipe, ()))] == known_keys(Recipe, ())
    assert "cluster" in named
    assert "setup_script" in named


def test_keys_of_the_profile() -> None:
    named = [line.split()[0] for line in run("cluster").stdout.splitlines() if line.startswith("    ")]
    assert named[: len(ClusterProfile.model_fields)] == list(ClusterProfile.model_fields)
    assert "ssh" in named


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("name", "default   none: it must be given"),
        ("health_check.max_attempts", "default   180"),
        ("health_check.max_attempts", "type      a whole number of at least 1"),
        ("roles.agg.nodes", "type      a whole number of at least 1 or `colocate`"),
        ("checks.kv_events", "type      true, false, `warn`, `fail` or a mapping"),
        ("roles.agg.sidecar.args", "type      a mapping of names to any value or a list of text"),
        ("environment", "type      a mapping of names to text or a number"),
        ("environment.A", "type      text or a number"),
        ("cluster.ephemeral_port_floor", "type      a whole number of at least 1024 and at most 65536"),
        ("roles.agg.args", "default   empty"),
        ("resources", "default   the defaults of its keys"),
        ("slurm.account", "also      `cluster.default_account` applies where this is not set"),
        ("roles.agg.sidecar", "also      `dynamo.sidecar` applies where this is not set"),
        ("dynamo.sidecar", "also      `roles.*.sidecar` wins over it"),
        ("environment", "also      `cluster.env` is laid under it"),
        ("cluster.env", "also      `environment` is laid over it"),
        ("roles.agg.args.tp-size", "One entry of `roles.agg.args`. Engine flags"),
        ("cluster.env.HOME", "One entry of `cluster.env`. Environment"),
        ("roles.agg.container", "Known, but not built yet: every role uses `model.container`."),
        ("dynamo.source.pypi", "A release of the package index."),
        ("frontend.nginx_container", "default   nginx:1.27.4"),
        ("override_tp8", "A variant: laid over `base`"),
        ("sweep.tp", "Variants, one for each combination"),
        ("services", "type      a list of mappings"),
        ("services", "    inherit_discovery_env  Tell it"),
        ("services.port", "services.0.port\n  What it listens on"),
        ("services.0.placement.node", "default   0"),
        ("engine", "    connector                        `vllm`: how KV caches"),
        ("engine.speedup_ratio", "type      a number"),
        ("roles.agg.direct_dispatch", "a list of whole numbers of at least 0"),
        ("cluster.ssh", "Known, but not built yet: jobs are submitted from this machine."),
        ("roles.agg", "    critical   the first failure of any process ends the job"),
    ],
)
def test_what_is_said(field: str, said: str) -> None:
    result = run(field)
    assert result.exit_code == 0
    assert said in result.stdout


@pytest.mark.parametrize(
    ("field", "message", "hint"),
    [
        ("roles.decode.kv_event", "there is no key `roles.decode.kv_event`", "did you mean `kv_events`?"),
        ("rolls.decode.kv_events", "there is no key `rolls`", "did you mean `roles`?"),
        ("kv_events", "there is no key `kv_events`", "`kv_events` belongs in `roles.prefill/decode/agg`"),
        ("roles.agg.tp-size", "there is no key `roles.agg.tp-size`", "engine flags go into `roles.agg.args`"),
        ("backend.type", "there is no key `backend.type`", "this is the v1 layout; in v2 it is `engine`"),
        ("name.first", "there is no key `name.first`", "`name` holds one value, and no keys"),
        ("engine.foo", "there is no key `engine.foo`", "known here: type, connector"),
        ("engine.conector", "there is no key `engine.conector`", "did you mean `connector`?"),
        ("services.prot", "there is no key `services.0.prot`", "did you mean `port`?"),
        ("cluster.gpu_per_node", "there is no key `cluster.gpu_per_node`", "did you mean `gpus_per_node`?"),
        (".", "there is no key ``", "known here: schema, name"),
    ],
)
def test_an_unknown_field(field: str, message: str, hint: str) -> None:
    result = run(field)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"error: {message}\n" in result.stderr
    assert f"hint: {hint}" in result.stderr


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["roles.agg.nodes"], ["now       2 (r.yaml:9:12)"]),
        (["roles.agg.workers"], ["now       the default"]),
        (["resources.gpus_per_node"], ["now       the default"]),
        (["roles.agg.workers", "--set", "roles.agg.workers=3"], ["now       3 (--set roles.agg.workers=3)"]),
        (["roles.agg.nodes", "--unset", "roles.agg.nodes"], ["now       missing"]),
        (["roles.agg.sidecar"], ["now       true (`dynamo.sidecar`, r.yaml:5:19)"]),
        (
            ["roles.agg.sidecar", "--set", "roles.agg.sidecar=false"],
            ["now       false (--set roles.agg.sidecar=false)", "not used  true (`dynamo.sidecar`, r.yaml:5:19)"],
        ),
        (["roles.agg.sidecar.startup_timeout"], ["now       600 (`dynamo.sidecar_startup_timeout`, r.yaml:5:50)"]),
        (["roles.agg.kv_events.topic"], ["now       true (`roles.agg.kv_events`, r.yaml:10:16)"]),
        (["slurm.account"], ["now       us (`cluster.default_account`, {home}/srtslurm.yaml:2:18)"]),
        (
            ["slurm.account", "--set", "slurm.account=me"],
            [
                "now       me (--set slurm.account=me)",
                "not used  us (`cluster.default_account`, {home}/srtslurm.yaml:2:18)",
            ],
        ),
        (["slurm.account", "--cluster", "none"], ["now       the default"]),
        (
            ["roles.agg.env"],
            [
                "now       {{A: role}} (r.yaml:11:10)",
                "over      {{A: recipe, B: 16}} (`environment`, r.yaml:6:14)",
                "over      {{A: site, C: site}} (`cluster.env`, {home}/srtslurm.yaml:3:6)",
            ],
        ),
        (
            ["roles.agg.env.A"],
            [
                "now       role (r.yaml:11:14)",
                "not used  recipe (`environment.A`, r.yaml:6:18)",
                "not used  site (`cluster.env.A`, {home}/srtslurm.yaml:3:10)",
            ],
        ),
        (["roles.agg.env.B"], ["now       0x10 (`environment.B`, r.yaml:6:29)"]),
        (["roles.agg.env.C"], ["now       site (`cluster.env.C`, {home}/srtslurm.yaml:3:19)"]),
        (["roles.agg.args.verbose"], ["now       null (r.yaml:12:33)"]),
        (["roles.agg.args.other"], ["now       the default"]),
    ],
)
def test_the_present_value_and_where_it_came_from(home: Path, argv: list[str], said: list[str]) -> None:
    result = run(*argv, "--recipe", "r.yaml")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = [line.strip() for line in result.stdout.splitlines() if line.startswith(("  now", "  over", "  not used"))]
    assert lines == [line.format(home=home) for line in said]


def test_a_key_of_the_profile_needs_no_recipe(home: Path) -> None:
    assert f"now       us ({home}/srtslurm.yaml:2:18)" in run("cluster.default_account").stdout
    assert "now       the default" in run("cluster.default_account", "--cluster", "none").stdout
    assert "now  " not in run("slurm.account").stdout


def test_a_recipe_with_other_faults_is_explained_all_the_same(home: Path) -> None:
    (home / "r.yaml").write_text(RECIPE + "colour: red\n")
    assert "now       demo (r.yaml:2:7)" in run("name", "--recipe", "r.yaml").stdout


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["name", "--recipe", "no.yaml"], "yaml/not-found"),
        (["name", "--recipe", "broken.yaml"], "yaml/syntax"),
        (["name", "--recipe", "r.yaml", "--set", "name"], "override/syntax"),
        (["name", "--recipe", "r.yaml", "--unset", "nme"], "override/path"),
        (["name", "--set", "name=x"], "name it with --recipe"),
        (["slurm.account", "--recipe", "r.yaml", "--cluster", "no.yaml"], "yaml/not-found"),
    ],
)
def test_what_cannot_be_read(home: Path, argv: list[str], said: str) -> None:
    (home / "broken.yaml").write_text("a: [\n")
    result = run(*argv)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_a_key_of_the_first_list_item(home: Path) -> None:
    (home / "r.yaml").write_text(RECIPE + "services: [{name: one, command: run}]\n")
    assert "now       one (r.yaml:13:19)" in run("services.name", "--recipe", "r.yaml").stdout


def test_json() -> None:
    found = json.loads(run("slurm.account", "--recipe", "r.yaml", "-o", "json").stdout)
    assert found["path"] == "slurm.account"
    assert found["type"] == "text"
    assert found["default"] == "not set"
    assert [(item["path"], item["value"], item["line"], item["effect"]) for item in found["settings"]] == [
        ("cluster.default_account", "us", 2, "applies")
    ]
    assert "settings" not in json.loads(run("slurm.account", "-o", "json").stdout)
    assert json.loads(run("-o", "json").stdout)["keys"][0]["name"] == "schema"


def every_field() -> list[str]:
    """Each key of recipe and profile, dotted."""
    found, todo = [], [*known_keys(Recipe, ()), *(f"cluster.{name}" for name in ClusterProfile.model_fields)]
    while todo:
        found.append(todo.pop())
        todo += [f"{found[-1]}.{key.name}" for key in explain(found[-1]).keys]
    return found


@pytest.mark.parametrize("field", every_field())
def test_every_key_is_explained(field: str) -> None:
    explained = explain(field)
    assert explained.doc
    assert explained.type
    assert explained.required or explained.default
    assert run(field, "--recipe", "r.yaml").exit_code == 0


def test_the_table_of_fallbacks_names_real_keys() -> None:
    for row in FALLBACKS:
        for place in (row.pattern.replace("*", "agg"), *row.places):
            assert explain(place).type, place
    with pytest.raises(UnknownFieldError):
        explain("environmen")
