"""Bad recipes: each has one problem, with its code, its place (`«` in the new text) and a hint."""

from __future__ import annotations

from pathlib import Path

import pytest
from recipe_texts import DISAGGREGATED, HAPPY, changed, marked

from srtctl.recipe.load import load_recipe

ENV = "    env: "
CASES = [
    # code, what of the happy recipe is replaced, by what, part of the message, part of the hint
    ("recipe/unknown-key", "", "«frontnd: {}", "`frontnd` is not a known key", "did you mean `frontend`?"),
    ("recipe/unknown-key", "container: sglang", "container: sglang, «precison: fp8", "`model.precison`", "`precision`"),
    ("recipe/unknown-key", "    workers: 1", "    «wokers: 1", "`roles.agg.wokers`", "did you mean `workers`?"),
    (
        "recipe/unknown-key",
        "    workers: 1",
        "    «kv-event: true",
        "`roles.agg.kv-event`",
        "did you mean `kv_events`?",
    ),
    ("recipe/unknown-key", "    workers: 1", "    «tp-size: 1", "`roles.agg.tp-size`", "go into `roles.agg.args`"),
    ("recipe/unknown-key", "    workers: 1", "    «mem_fraction_static: 1", "mem_fraction", "go into `roles.agg.args`"),
    ("recipe/unknown-key", "    workers: 1", "    «gpus_per_node: 1", "gpus_per_node", "belongs in `resources`"),
    (
        "recipe/unknown-key",
        "gpus_per_node: 1",
        "gpus_per_node: 1, «workers: 1",
        "workers",
        "`roles.prefill/decode/agg`",
    ),
    (
        "recipe/unknown-key",
        "gpus_per_node: 1",
        "gpus_per_node: 1, «agg_nodes: 1",
        "agg_nodes",
        "it is `roles.agg.nodes`",
    ),
    (
        "recipe/unknown-key",
        "  agg:",
        "  «aggregated: {nodes: 1}\n  agg:",
        "`roles.aggregated`",
        "known here: prefill, decode, agg",
    ),
    ("recipe/unknown-key", "", "«backend: {type: sglang}", "`backend`", "in v2 it is `engine` and `roles`"),
    ("recipe/unknown-key", "", "dynamo: {«version: 0.8.0}", "`dynamo.version`", "`dynamo.source`"),
    ("recipe/unknown-key", "", "checks: {«kv_event: false}", "`checks.kv_event`", "did you mean `kv_events`?"),
    ("recipe/unknown-key", "", "checks: {kv_events: {«on_fail: warn}}", "on_fail", "did you mean `on_failure`?"),
    ("recipe/unknown-key", "kv_events: true", "kv_events: {«topics: a}", "kv_events.topics", "did you mean `topic`?"),
    ("recipe/missing", "name: qwen3-attention-dp\n", "", "`name` is missing", "letters, digits"),
    (
        "recipe/missing",
        "model: {path: qwen3-0.6b, container: sglang}",
        "«model: {path: q}",
        "`model.container` is missing",
        "Image",
    ),
    ("recipe/missing", "    nodes: 2\n", "", "`roles.agg.nodes` is missing", "at least 1"),
    ("recipe/missing", "engine: sglang", "«engine: {knob: 1}", "`engine.type` is missing", "sglang"),
    ("recipe/type", "gpus_per_node: 1", "gpus_per_node: «'8'", 'whole number, not "8"', "write 8, without quotes"),
    ("recipe/type", "gpus_per_node: 1", "gpus_per_node: «1_0", "whole number", "write 10, without quotes"),
    ("recipe/type", "gpus_per_node: 1", "gpus_per_node: «8.0", "whole number, not 8.0", "write 8"),
    ("recipe/type", "gpus_per_node: 1", "gpus_per_node: «true", "whole number, not true", "GPUs of one node"),
    ("recipe/type", "    workers: 1", "    workers: «null", "not null", "remove the line to get the default"),
    ("recipe/type", "gpus_per_node: 1", "spread_workers: «yes", "true or false", "write true, without quotes"),
    ("recipe/type", "gpus_per_node: 1", "spread_workers: «0", "true or false, not 0", "write false"),
    ("recipe/type", "container: sglang", "container: «0.50", "must be text, not 0.5", 'quote it: "0.50"'),
    ("recipe/type", "", "slurm: {time_limit: «30}", "must be text, not 30", 'quote it: "30"'),
    (
        "recipe/type",
        "resources: {gpus_per_node: 1}",
        "resources: «8",
        "must be a mapping, not 8",
        "its keys are gpu_type, ",
    ),
    ("recipe/type", "resources: {gpus_per_node: 1}", "resources: «[8]", "mapping, not a list", "its keys are"),
    ("recipe/type", "args: {router-mode: kv}", "args: «kv", "`frontend.args` must be a mapping", "without the dashes"),
    (
        "recipe/type",
        "kv_events: true",
        "kv_events: «on",
        'true, false or a mapping, not "on"',
        "write true, without quotes",
    ),
    ("recipe/type", "sidecar: true", "sidecar: «dynamo", "true, false or a mapping", "Dynamo sidecar"),
    ("recipe/type", "sidecar: true", "sidecar: {args: «8}", "a list of words, not 8", "as in"),
    ("recipe/type", "sidecar: true", "sidecar: {args: «[--port, 8]}", "but holds 8", "quote each word"),
    (
        "recipe/type",
        "    workers: 1",
        "    env: {A: «true}",
        "text, not the bool true",
        'quote the spelling you mean: "true" or "1"',
    ),
    ("recipe/type", "    workers: 1", "    env: {A: «}", "not null", '""'),
    ("recipe/type", "    workers: 1", "    env: {A: «[1]}", "not a list", "quote it"),
    ("recipe/type", "", "sbatch_directives: {exclusive: «true}", "text, not the bool true", "quote"),
    ("recipe/type", "", "checks: «none", "must be false, or a mapping of check names", "false for none"),
    ("recipe/value", "schema: 2", "schema: «3", "`schema` must be `2`, not 3", "Version"),
    ("recipe/value", "schema: 2", "schema: «'2'", "`schema` must be `2`", "write 2, without quotes"),
    ("recipe/value", "qwen3-attention-dp", "«a/b", "`name` is not valid", "letters, digits"),
    ("recipe/value", "qwen3-attention-dp", "«" + "n" * 128, "`name` is not valid", "at most 127"),
    ("recipe/value", "qwen3-attention-dp", "«-a", "`name` is not valid", "a letter or digit first"),
    ("recipe/value", "engine: sglang", "engine: «sgalng", "must be `sglang`", "did you mean `sglang`?"),
    ("recipe/value", "engine: sglang", "engine: {type: «sgalng}", "`engine.type` must be `sglang`", "did you mean"),
    ("recipe/value", "    nodes: 2", "    nodes: «0", "at least 1, or `colocate`, not 0", "colocate"),
    ("recipe/value", "    nodes: 2", "    nodes: «'2'", "at least 1", "remove the quotes: 2"),
    ("recipe/value", "    nodes: 2", "    nodes: «1.5", "whole number", "together"),
    ("recipe/value", "    workers: 1", "    workers: «0", "at least 1, not 0", "Number of workers"),
    ("recipe/value", "kv_events: true", "kv_events: {publisher: «nats}", "must be `zmq`", "zmq"),
    (
        "recipe/value",
        "    workers: 1",
        "    env: {«A-B: 1}",
        "`roles.agg.env.A-B` is not a valid name",
        "letters, digits and `_`",
    ),
    ("recipe/value", "page-size", "«--page-size", "is not a valid name", "without the leading dashes"),
    ("recipe/value", "", "dynamo: {request_plane: «ncp}", "`tcp` or `nats`", "did you mean `tcp`?"),
    ("recipe/value", "", "checks: {registration: «error}", "`warn`, `fail` or a mapping", "Every planned worker"),
    ("recipe/value", "", "slurm: {time_limit: «2h}", "is not valid", "HH:MM:SS"),
    ("recipe/value", "", "slurm: {account: «''}", "must not be empty", "default_account"),
    ("recipe/value", "", "health_check: {max_attempts: «-1}", "at least 1, not -1", "gives up"),
    (
        "recipe/rule",
        "  agg:\n",
        "  prefill: {nodes: 1}\n  «agg:\n",
        "`roles.agg` cannot stand beside `prefill`",
        "agg stands alone",
    ),
    ("recipe/rule", "  agg:\n", "  «prefill:\n", "`roles.prefill` is given without `roles.decode`", "go together"),
    ("recipe/rule", "  agg:\n", "  «decode:\n", "`roles.decode` is given without `roles.prefill`", "go together"),
    ("recipe/rule", "    nodes: 2", "    nodes: «colocate", "`roles.agg.nodes` cannot be `colocate`", "only decode"),
    (
        "recipe/rule",
        "page-size: 16",
        "page-size: 16, «page_size: 16",
        "`roles.agg.args.page_size` and `page-size`",
        "remove one",
    ),
    ("recipe/rule", "{router-mode: kv}", "{router-mode: kv, «router_mode: kv}", "same flag", "remove one"),
    ("yaml/leading-zero", "    nodes: 2", "    nodes: «02", "two ways", "quote it"),
    ("yaml/duplicate-key", "", "«engine: sglang", "first on line 6", "remove one"),
]
# Where the place is the start of the file, or the key of the mapping that lacks something.
UNMARKED = {"`name` is missing": "2:1", "`roles.agg.nodes` is missing": "8:3"}


@pytest.mark.parametrize(
    ("code", "old", "new", "message", "hint"), CASES, ids=[f"{c[0]}:{c[2].strip()[:30]}" for c in CASES]
)
def test_problem(tmp_path: Path, code: str, old: str, new: str, message: str, hint: str) -> None:
    text = changed(old, new)
    text, place = (text, UNMARKED[message]) if "«" not in text else marked(text)
    path = tmp_path / "r.yaml"
    path.write_text(text)
    loaded = load_recipe(path)
    assert [(item.code, str(item.span), item.severity) for item in loaded.diagnostics] == [
        (code, f"{path}:{place}", "error")
    ]
    [found] = loaded.diagnostics
    assert message in found.message
    assert hint in found.hint
    assert loaded.recipe is None


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("- schema: 2\n", "recipe/type", "1:1"),
        ("just text\n", "recipe/type", "1:1"),
        ("roles: {}\n", "recipe/missing", "1:1"),
        (changed("  agg:\n", "  other:\n"), "recipe/unknown-key", "8:3"),
        (HAPPY.split("roles:")[0] + "roles: {}\n", "recipe/rule", "7:1"),
        (HAPPY.split("roles:")[0] + "roles: {agg: null}\n", "recipe/rule", "7:1"),
        (HAPPY.split("roles:")[0] + "roles: agg\n", "recipe/type", "7:8"),
    ],
)
def test_wrong_from_the_ground_up(tmp_path: Path, text: str, code: str, place: str) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(text)
    assert (code, f"{path}:{place}") in [(item.code, str(item.span)) for item in load_recipe(path).diagnostics]


def test_a_wrong_sidecar_default_is_reported_where_it_stands_and_only_there(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(changed("sidecar_args: {a: 1, b: [x, y]}", "sidecar_args: 5", DISAGGREGATED))
    assert [item.path for item in load_recipe(path).diagnostics] == ["dynamo.sidecar_args"]


def test_everything_wrong_is_reported_at_once_in_file_order(tmp_path: Path) -> None:
    text = changed("gpus_per_node: 1", "gpus_per_nod: 1")
    text = changed("    workers: 1", "    workers: 1\n    workers: one", text)
    text = (
        changed("router-mode: kv", "router-mode: kv, router_mode: kv", text)
        + "telemetry: {enabled: true}\nslurm: {time_limit: 010}\n"
    )
    path = tmp_path / "r.yaml"
    path.write_text(text)
    found = load_recipe(path).diagnostics
    assert [item.code for item in found] == [
        "recipe/unknown-key",
        "yaml/duplicate-key",
        "recipe/rule",
        "recipe/not-built",
        "yaml/leading-zero",
    ]
    assert [item.span.line for item in found if item.span] == [5, 11, 18, 19, 20]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    loaded = load_recipe(tmp_path / "no.yaml")
    assert loaded.recipe is None
    assert [item.code for item in loaded.diagnostics] == ["yaml/not-found"]
    assert loaded.span("name") is None
