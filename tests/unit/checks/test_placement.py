"""Plan against survey: what is wrong on a node is named with its process and its node."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from srtctl.checks.model import FAIL, PASS, Target, Verdict, combined
from srtctl.checks.placement import evaluate
from srtctl.checks.plan_file import load
from srtctl.checks.survey import NodeView, parse, read

from .running_checks import run_only
from .scenario import agg, agg_plan

SURVEY = "node\tnode-a\nprocess\tagg-0.0\tengine\t12\t0,1\nprocess\tagg-0.0\tsidecar\t13\t\nlisten\t6100\tagg-0.0\nlisten\t22\t\n"
HEALTHY = {
    0: NodeView(
        "node-a",
        {6100: "agg-0.0", 9100: "agg-0.0", 21149: "agg-0.0"},
        {("agg-0.0", "engine"): "0", ("agg-0.0", "sidecar"): ""},
    ),
    1: NodeView(
        "node-b", {6100: "agg-0.1", 21150: "agg-0.1"}, {("agg-0.1", "engine"): "0", ("agg-0.1", "sidecar"): ""}
    ),
    2: NodeView("node-c", {8000: "frontend-0"}, {("frontend-0", "frontend"): "0"}),
}


def test_a_survey_is_read() -> None:
    view = parse(SURVEY)
    assert view.name == "node-a"
    assert dict(view.listening) == {6100: "agg-0.0", 22: ""}
    assert view.processes == {("agg-0.0", "engine"): "0,1", ("agg-0.0", "sidecar"): ""}


def test_a_node_without_a_survey(tmp_path: Path) -> None:
    assert read(tmp_path, 0) is None
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "survey.0.tsv").write_text(SURVEY)
    assert read(tmp_path, 0) == parse(SURVEY)


def found(folder: Path, views: dict[int, NodeView]) -> tuple[Verdict, str]:
    plan = agg_plan()
    plan["workers"] = plan["workers"][:1]
    plan["checks"] = []
    for process in plan["workers"][0]["processes"]:
        process["ready_port"] = 9100 if process["node"] == 0 else None
    plan["claims"] = [
        {"node": node, "first": first, "count": 1, "purpose": purpose, "owner": f"agg-0.{node}"}
        for node, first, purpose in [(0, 6100, "http"), (0, 9100, "grpc"), (0, 21149, "system"), (1, 21150, "system")]
    ]
    plan["frontends"][0].update(port=8000, env={"ETCD_ENDPOINTS": "http://x:1"})
    (folder / "plan.json").write_text(json.dumps(plan))
    (folder / "nodes.tsv").write_text("0\tnode-a\t10.0.0.1\n1\tnode-b\t10.0.0.2\n2\tnode-c\t10.0.0.3\n")
    deployment = load(folder / "plan.json", folder / "nodes.tsv")
    outcome = evaluate(deployment, [Target("agg-0")], views)
    return combined(outcome), "; ".join([outcome.results[0].message, outcome.problem])


def without(node: int, **changes: object) -> dict[int, NodeView]:
    return {**HEALTHY, node: dataclasses.replace(HEALTHY[node], **changes)}  # type: ignore[arg-type]


WRONG: dict[str, tuple[dict[int, NodeView], str]] = {
    "no sidecar": (
        without(1, processes={("agg-0.1", "engine"): "0"}),
        "agg-0: agg-0.1 sidecar does not run on node-b",
    ),
    "on another node": (
        {
            **without(1, processes={}),
            0: NodeView("node-a", HEALTHY[0].listening, {**HEALTHY[0].processes, **HEALTHY[1].processes}),
        },
        "agg-0.1 engine does not run on node-b but on node-a",
    ),
    "other GPUs": (
        without(1, processes={("agg-0.1", "engine"): "0,1", ("agg-0.1", "sidecar"): ""}),
        "agg-0.1 engine on node-b has GPUs 0,1, the plan gives it 0",
    ),
    "no GPUs": (
        without(1, processes={("agg-0.1", "engine"): "", ("agg-0.1", "sidecar"): ""}),
        "agg-0.1 engine on node-b has GPUs none set, the plan gives it 0",
    ),
    "a port": (
        without(0, listening={6100: "agg-0.0", 21149: "agg-0.0"}),
        "nothing listens on port 9100 (grpc of agg-0.0) on node-a",
    ),
    "another host": (without(1, name="node-z"), "plan node 1 is node-z, state/nodes.tsv says node-b"),
    "no survey": ({0: HEALTHY[0], 2: HEALTHY[2]}, "node-b did not survey itself (logs/survey.log)"),
    "frontend": (without(2, listening={}), "nothing listens on port 8000 (frontend of frontend-0) on node-c"),
}


def test_what_fits_passes(tmp_path: Path) -> None:
    assert found(tmp_path, HEALTHY) == (PASS, "it runs on the nodes, GPUs and ports of the plan; ")


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_named(name: str, tmp_path: Path) -> None:
    views, words = WRONG[name]
    verdict, text = found(tmp_path, views)
    assert verdict == FAIL
    assert words in text


def test_nothing_surveyed_leaves_it_open(tmp_path: Path) -> None:
    scenario = agg()
    scenario.add_check("placement", [{"worker": "agg-0", "dp_rank": None}])
    check = run_only(scenario, tmp_path, "placement")
    assert (check["verdict"], check["reason"]) == ("skip", "no node surveyed itself; see logs/survey.log")
