"""Plans to JSON and back, and what is said of a file that is no plan any more."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from plans import disaggregated

from srtctl.diagnostics import Diagnostic, DiagnosticError, Related, Span
from srtctl.plan.integrity import problems
from srtctl.plan.model import Plan
from srtctl.plan.serial import is_saved_plan, plan_dict, plan_json, read_plan
from tests.support import EXAMPLES, REPOSITORY, example_id, plan_of

PLAN = plan_of(REPOSITORY / "examples/agg/sglang-attention-dp-2n.yaml")


@pytest.mark.parametrize("example", EXAMPLES, ids=example_id)
@pytest.mark.parametrize("profile", [{}, {"nodes_share_host": True}, {"default_partition": "gpu"}], ids=str)
def test_every_example_reads_back_equal(example: Path, profile: dict[str, Any]) -> None:
    plan = plan_of(example, **profile)
    assert read_plan(plan_json(plan), "p.json") == plan
    assert plan_json(read_plan(plan_json(plan), "p.json")) == plan_json(plan)


def test_a_large_plan_reads_back_equal(tmp_path: Path) -> None:
    plan = disaggregated(tmp_path, 64)
    assert read_plan(plan_json(plan), "p.json") == plan


def test_json_is_what_the_standard_library_writes(tmp_path: Path) -> None:
    plan = replace(PLAN, name="größer", environment={"A": 'quote " and \\ and \t', "B": "\x7f \u2028"})
    assert plan_json(plan) == json.dumps(plan_dict(plan), indent=2, ensure_ascii=False) + "\n"


WARNINGS = (
    Diagnostic("a/plain", "a warning", severity="warning"),
    Diagnostic(
        "a/full",
        "a warning",
        "roles.agg",
        Span("r.yaml", 3, 5, 9),
        "do this",
        "warning",
        (Related("there", "frontend", Span("r.yaml", 8, 1)), Related("and there")),
    ),
)


def test_warnings_read_back_with_their_places() -> None:
    plan = replace(PLAN, warnings=WARNINGS)
    assert read_plan(plan_json(plan), "p.json").warnings == WARNINGS


def refusal(text: str) -> list[Diagnostic]:
    with pytest.raises(DiagnosticError) as caught:
        read_plan(text, "p.json")
    assert caught.value.diagnostics[-1].hint
    return caught.value.diagnostics


def edited(edit: Callable[[dict[str, Any]], object]) -> str:
    data = plan_dict(PLAN)
    edit(data)
    return json.dumps(data)


def process(data: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = data["workers"][0]["processes"][0]
    return found


def publisher(data: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = process(data)["publishers"][0]
    return found


WARNING = {"code": "a/b", "severity": "warning", "message": "m"}
EDITS: list[tuple[str, Callable[[dict[str, Any]], object], str, str]] = [
    ("unknown key", lambda d: d.update(colour="red"), "colour", "p.json: `colour` is not known to this srtctl"),
    ("unknown key below", lambda d: process(d).update(x=1), "workers.0.processes.0.x", "is not known"),
    ("unknown key in a warning", lambda d: d.update(warnings=[WARNING | {"x": 1}]), "warnings.0.x", "is not known"),
    ("missing", lambda d: process(d).pop("argv"), "workers.0.processes.0.argv", "is missing"),
    ("missing, with a default", lambda d: d["checks"][0].pop("timeout"), "checks.0.timeout", "is missing"),
    ("text for a number", lambda d: process(d).update(node="0"), "workers.0.processes.0.node", "should be a valid integer"),
    ("bool for a number", lambda d: process(d).update(node=False), "workers.0.processes.0.node", "should be a valid integer"),
    ("float for a number", lambda d: d.update(nodes=2.0), "nodes", "should be a valid integer"),
    ("number for text", lambda d: process(d)["env"].update(A=5), "workers.0.processes.0.env.A", "should be a valid string"),
    ("number in argv", lambda d: process(d)["argv"].insert(0, 5), "workers.0.processes.0.argv.0", "should be a valid string"),
    ("word out of a set", lambda d: d["checks"][0].update(on_failure="maybe"), "checks.0.on_failure", "'fail' or 'warn'"),
    ("not a number", lambda d: d["checks"][0].update(timeout=float("nan")), "checks.0.timeout", "nan"),
    ("table for a list", lambda d: d.update(workers={}), "workers", "should be a valid array"),
    ("warnings are no list", lambda d: d.update(warnings=5), "warnings", "is no list of diagnostics"),
    ("a warning is no table", lambda d: d.update(warnings=[5]), "warnings", "is no list of diagnostics"),
    ("no such node", lambda d: d["claims"][0].update(node=9), "claims.0.node", "is 9, but the plan has nodes 0 to 1"),
    ("a name that is a path", lambda d: d["services"][0].update(name="../x"), "services.0.name", "no plain file name"),
    ("a name twice", lambda d: d["services"][0].update(name="frontend-0"), "frontends.0.name", "is called too"),
    ("a rank that is none", lambda d: process(d).update(node_rank=1), "workers.0.processes.0.node_rank", "is number 0"),
    ("another process name", lambda d: process(d).update(name="a"), "workers.0.processes.0.name", "not `agg-0.0`"),
    ("no processes", lambda d: d["workers"][0].update(processes=[], nodes=[]), "workers.0.processes", "is empty"),
    ("a rank nobody serves", lambda d: process(d).update(serves=[0]), "workers.0.processes", "serve ranks [0], not each of 2"),
    ("nodes that are others", lambda d: d["workers"][0].update(nodes=[1, 0]), "workers.0.nodes", "[1, 0]"),
    ("no such GPU", lambda d: process(d).update(gpus=[1]), "workers.0.processes.0.gpus", "GPUs 0 to 0"),
    ("overlapping claims", lambda d: d["claims"][0].update(count=5000), "claims.1", "overlaps"),
    ("an empty claim", lambda d: d["claims"][0].update(count=0), "claims.0", "no interval of ports"),
    ("a port nobody claims", lambda d: process(d).update(ready_port=1), "workers.0.processes.0.ready_port", "nothing claims"),
    ("a publisher elsewhere", lambda d: publisher(d).update(port=1), "workers.0.processes.0.publishers.0.port", "nothing claims"),
    ("a target that is none", lambda d: d["checks"][0]["targets"][0].update(dp_rank=7), "checks.0.targets.0", "rank 7 of agg-0"),
]  # fmt: skip


@pytest.mark.parametrize(("edit", "path", "words"), [e[1:] for e in EDITS], ids=[e[0] for e in EDITS])
def test_an_edit_that_makes_it_no_plan(edit: Callable[[dict[str, Any]], object], path: str, words: str) -> None:
    found = refusal(edited(edit))
    assert path in [d.path for d in found]
    assert words in next(d.message for d in found if d.path == path)
    assert all(d.message.startswith("p.json: ") for d in found)


def test_an_edit_that_leaves_it_one_is_taken() -> None:
    text = edited(lambda d: process(d)["argv"].append("--mem-fraction-static=0.8"))
    assert read_plan(text, "p.json").workers[0].processes[0].argv[-1] == "--mem-fraction-static=0.8"


def test_many_faults_are_counted() -> None:
    found = refusal(edited(lambda d: d.update({f"key-{i}": 1 for i in range(30)})))
    assert len(found) == 11
    assert found[-1].message == "p.json: and 20 more like these"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (plan_json(PLAN)[:500], "p.json is no complete JSON"),
        ("", "p.json is no complete JSON"),
        ('{"a":' * 100_000, "nested too deeply"),
        ("[]", "p.json is not a saved plan"),
        ('{"verdict": "pass"}', "p.json is not a saved plan"),
        (edited(lambda d: d.update(version=2)), "a plan of version 2; this srtctl reads version 1"),
        (edited(lambda d: d.pop("version")), "a plan of version None"),
    ],
    ids=["truncated", "empty", "deep", "list", "another file", "later version", "no version"],
)
def test_what_is_no_plan_at_all(text: str, words: str) -> None:
    assert words in refusal(text)[0].message


def test_truncated_json_says_where() -> None:
    assert refusal('{"workers": [\n1,')[0].span == Span("p.json", 2, 3)


@pytest.mark.parametrize(
    ("text", "file", "saved"),
    [
        (plan_json(PLAN), "p.json", True),
        ("\n  " + plan_json(PLAN), "plan", True),
        (plan_json(PLAN)[:100], "p.json", True),
        (plan_json(PLAN)[:100], "p.yaml", False),
        ('{"schema": 2, "roles": {"agg": {"workers": 1}}}', "recipe.json", False),
        ("{schema: 2, roles: {agg: {workers: 1}}}", "r.yaml", False),
        ("schema: 2\n", "r.yaml", False),
        ("", "p.json", False),
    ],
)
def test_telling_a_plan_from_a_recipe(text: str, file: str, saved: bool) -> None:
    assert is_saved_plan(text, file) is saved


@pytest.mark.parametrize("example", EXAMPLES, ids=example_id)
def test_planning_keeps_to_the_rules(example: Path) -> None:
    assert problems(plan_of(example)) == []


def test_planning_keeps_to_the_rules_on_many_nodes(tmp_path: Path) -> None:
    plans: list[Plan] = [disaggregated(tmp_path, 16), disaggregated(tmp_path, 16, nodes_share_host=True)]
    assert [problems(plan) for plan in plans] == [[], []]
