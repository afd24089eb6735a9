"""Symptom -> which check fails, which are skipped, and what it says. Recorded Dynamo 1.6.1 data, then broken."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from srtctl.checks.__main__ import main
from srtctl.checks.context import Limits

from .scenario import AGG0, AGG1, DECODE0, PREFILL0, Scenario, agg, disaggregated, running

ONE_LOOK = Limits(registration=0, kv_events=0, settle=0, poll=0.01)
PATIENT = Limits(registration=60, kv_events=60, settle=0.05, poll=0.01)

PASSED = {"registration": "pass", "rank_routing": "pass", "kv_events": "pass"}
UNREGISTERED = {"registration": "fail", "rank_routing": "skip", "kv_events": "skip"}
UNROUTED = {"registration": "pass", "rank_routing": "fail", "kv_events": "skip"}
SILENT = {"registration": "pass", "rank_routing": "pass", "kv_events": "fail"}


def check(scenario: Scenario, folder: Path, limits: Limits, *more: str) -> tuple[int, dict[str, Any]]:
    with running(scenario):
        code = main([*scenario.write(folder), *more], limits)
    return code, json.loads((folder / "checks.json").read_text())


def verdicts(result: dict[str, Any]) -> dict[str, str]:
    return {item["name"]: item["verdict"] for item in result["checks"]}


def targets(result: dict[str, Any], name: str) -> dict[tuple[str, int], Any]:
    found = next(item for item in result["checks"] if item["name"] == name)
    return {(target["worker"], target["dp_rank"]): target for target in found["targets"]}


def card_of(scenario: Scenario, worker_id: int) -> Any:
    return next(v["card_json"] for k, v in scenario.entries.items() if "/mdc/" in k and v["instance_id"] == worker_id)


def forget(scenario: Scenario, *parts: str) -> None:
    for key in [key for key in scenario.entries if any(part in key for part in parts)]:
        del scenario.entries[key]


def second_card(scenario: Scenario) -> None:
    key, value = next((k, v) for k, v in scenario.entries.items() if "/mdc/" in k and v["instance_id"] == AGG0)
    scenario.entries[key[:-16] + "00000000000000ff"] = {**value, "instance_id": 255}


def dp_size(size: int) -> Callable[[Scenario], None]:
    def change(scenario: Scenario) -> None:
        card_of(scenario, AGG0)["runtime_config"]["data_parallel_size"] = size

    return change


def unplan(scenario: Scenario, name: str) -> None:
    plan = scenario.plan
    plan["workers"] = [item for item in plan["workers"] if item["name"] != name]
    for item in plan["checks"]:
        item["targets"] = [target for target in item["targets"] if target["worker"] != name]


def stray_rank(scenario: Scenario) -> None:
    line = next(line for line in scenario.metrics.splitlines() if f'router_worker_id="{AGG0}"' in line)
    scenario.metrics += line.replace(str(AGG0), "99") + "\n"


def unregister_rank(scenario: Scenario, worker_id: int, rank: int) -> None:
    lines = scenario.metrics.splitlines(keepends=True)
    mine = f'dp_rank="{rank}"', f'router_worker_id="{worker_id}"'
    scenario.metrics = "".join(line.replace("} 1", "} 0") if all(m in line for m in mine) else line for line in lines)


def source_of_unplanned_rank(scenario: Scenario) -> None:
    scenario.plan["workers"][0]["processes"][1]["publishers"] = []


def second_source(scenario: Scenario) -> None:
    key, value = next((k, v) for k, v in scenario.entries.items() if k.endswith("/241b19a537145"))
    scenario.entries[key.replace("241b19a537145", "ff")] = value


def only_pinned(scenario: Scenario) -> None:
    scenario.unpinned_to = (5, 0)
    scenario.errors[(5, 0)] = (503, "busy")


SYMPTOMS: dict[str, tuple[Callable[[Scenario], object], dict[str, str], list[str]]] = {
    "nothing": (lambda _: None, PASSED, []),
    "leader sidecar missing": (
        lambda s: forget(s, "16c6a2294497530a", "1025b93d00e6dd", "241b19a537145"),
        UNREGISTERED,
        ["agg-0 rank 0", "no registration of its sidecar at 10.88.0.1:21149", "logs/agg-0.0.sidecar.log"],
    ),
    "another sidecar in its place": (
        lambda s: s.plan["workers"][0]["processes"][0]["sidecar"]["env"].update(DYN_SYSTEM_PORT="9"),
        UNREGISTERED,
        ["no registration of its sidecar at 10.88.0.1:9; found instead: tiny (aggregated) of 10.88.0.1:21149"],
    ),
    "two registrations of one sidecar": (
        second_card,
        UNREGISTERED,
        ["agg-0 rank 0: 2 registrations of its sidecar at 10.88.0.1:21149", "255", "stale"],
    ),
    "follower sidecar missing": (
        lambda s: forget(s, "241b19a537145"),
        UNREGISTERED,
        ["agg-0 rank 1: no KV event source", "node 1 port 5201", "logs/agg-0.1.sidecar.log"],
    ),
    "two KV event sources of one rank": (
        second_source,
        UNREGISTERED,
        ["agg-0 rank 1: 2 KV event sources registered, the plan has one"],
    ),
    "rank not with the router": (
        lambda s: unregister_rank(s, AGG1, 1),
        UNREGISTERED,
        [f"agg-1 rank 1: registered in discovery, but not with the frontend's router as worker id {AGG1}"],
    ),
    "engine reports dp_size 1": (
        dp_size(1),
        UNREGISTERED,
        ["agg-0 rank 0: agg-0 registered DP ranks [0], the plan has [0, 1]", "dp_size"],
    ),
    "engine reports dp_size 4": (dp_size(4), UNREGISTERED, ["agg-0 registered DP ranks [0, 1, 2, 3]"]),
    "another model": (
        lambda s: card_of(s, AGG0).update(display_name="other"),
        UNREGISTERED,
        ["agg-0 rank 0: registered as model 'other', the plan serves 'tiny'"],
    ),
    "another role": (
        lambda s: card_of(s, AGG0).update(worker_type="decode"),
        UNREGISTERED,
        ["agg-0 rank 0: registered as 'decode', the plan has it as 'aggregated'"],
    ),
    "a worker that nobody planned": (
        lambda s: unplan(s, "agg-2"),
        UNREGISTERED,
        ["extra registration: tiny (aggregated) of 10.88.0.2:21162"],
    ),
    "a rank of a worker that is gone": (
        stray_rank,
        UNREGISTERED,
        ["the frontend's router still holds worker id 99 rank"],
    ),
    "a KV event source of a worker that is gone": (
        lambda s: next(v for v in s.entries.values() if v["type"] == "EventSource")["metadata"].update(
            worker={"worker_id": 7, "dp_rank": 0}
        ),
        UNREGISTERED,
        ["stale KV event source of worker id 7 rank 0", "and 1 more"],
    ),
    "a KV event source that the plan does not have": (
        source_of_unplanned_rank,
        UNREGISTERED,
        ["agg-0 rank 1 has a KV event source that the plan does not have"],
    ),
    "a mocker that publishes unasked": (
        lambda s: (source_of_unplanned_rank(s), s.plan["workers"][0].update(engine="mocker")),
        PASSED,
        [],
    ),
    "unreadable card": (
        lambda s: s.entries.update({"v1/mdc/dynamo/backend/generate/1": {"card_json": {}}}),
        UNREGISTERED,
        ["unreadable registration: v1/mdc/dynamo/backend/generate/1"],
    ),
    "router counts a worker without sources": (
        lambda s: setattr(s, "metrics", s.metrics.replace('worker_type="decode"} 0', 'worker_type="decode"} 2')),
        UNREGISTERED,
        ["the frontend's router counts 2 agg worker(s) without their KV event sources"],
    ),
    "router that does not count": (
        lambda s: setattr(s, "metrics", s.metrics.replace("kv_event_source_mismatch", "other")),
        UNREGISTERED,
        ["the frontend reports no dynamo_component_router_kv_event_source_mismatch_workers for agg workers"],
    ),
    "frontend that lists another model": (
        lambda s: setattr(s, "models", ("other",)),
        UNREGISTERED,
        ["the frontend does not list model 'tiny', it lists other"],
    ),
    "frontend that lists nothing": (lambda s: setattr(s, "models", ()), UNREGISTERED, ["it lists none"]),
    "frontend without models": (
        lambda s: setattr(s, "models", None),
        UNREGISTERED,
        ["/v1/models: HTTP 503, not a list of models"],
    ),
    "frontend without KV router": (lambda s: setattr(s, "metrics", ""), UNREGISTERED, ["agg-0 rank 0", "mode kv?"]),
    "pinned request fails": (
        lambda s: s.errors.update({(AGG0, 1): (500, "Failed to generate completions")}),
        UNROUTED,
        ["agg-0 rank 1: HTTP 500 from the frontend: Failed to generate completions", "logs/agg-0.0.engine.log"],
    ),
    "another rank answers": (
        lambda s: s.moved.update({(AGG0, 1): (AGG1, 0)}),
        UNROUTED,
        ["agg-0 rank 1: a request pinned to it was answered by agg-1 rank 0"],
    ),
    "a rank that the plan does not have answers": (
        lambda s: s.moved.update({(AGG0, 1): (5, 3)}),
        UNROUTED,
        ["agg-0 rank 1: a request pinned to it was answered by worker id 5 rank 3, which the plan does not have"],
    ),
    "answers do not say who": (
        lambda s: setattr(s, "anonymous", True),
        UNROUTED,
        ["agg-0 rank 0: a request pinned to it was answered by a rank that the answer does not name"],
    ),
    "answer without a token": (
        lambda s: s.mute.add((AGG0, 1)),
        UNROUTED,
        ["agg-0 rank 1: answered without generating a token"],
    ),
    "rank 1 publishes nothing": (
        lambda s: s.lost.update({(AGG0, 1): float("inf")}),
        SILENT,
        [
            "agg-0 rank 1: no Stored event reached the router in 0 s (1 try, the engine itself reported 384 cached",
            "does agg-0.1 publish on node 1 port 5201? See logs/agg-0.1.engine.log",
        ],
    ),
    "router does not use what it knows": (
        lambda s: setattr(s, "unpinned_to", (5, 0)),
        SILENT,
        ["agg-0 rank 0: the router knows its blocks, but sent the same prompt without a pin to another rank"],
    ),
    "only requests without a pin fail": (
        only_pinned,
        SILENT,
        ["agg-0 rank 0: HTTP 503 from the frontend: busy (request without a pin) (1 try in 0 s)"],
    ),
    "no hit rates": (
        lambda s: setattr(s, "hit_rates", False),
        SILENT,
        ["agg-0 rank 0: the answers have no kv_hit_rate", "mode kv?"],
    ),
}


@pytest.mark.parametrize("name", SYMPTOMS)
def test_symptom_names_one_check(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change, expected, words = SYMPTOMS[name]
    scenario = agg()
    change(scenario)
    code, result = check(scenario, tmp_path, ONE_LOOK)
    assert verdicts(result) == expected
    assert code == (0 if expected is PASSED else 3)
    assert result["verdict"] == ("pass" if expected is PASSED else "fail")
    failed = [item for item in result["checks"] if item["verdict"] == "fail"]
    texts = [item["reason"] for item in failed] + [t["message"] for item in failed for t in item["targets"]]
    for word in words:
        assert any(word in text for text in texts), (word, texts)
    for item in result["checks"]:
        if item["verdict"] == "skip":
            assert item["reason"].startswith(f"because {failed[0]['name']} failed: ")
    assert capsys.readouterr().out == ""


def test_one_silent_rank_leaves_the_others_proven(tmp_path: Path) -> None:
    scenario = agg()
    scenario.lost[(AGG0, 1)] = float("inf")
    _, result = check(scenario, tmp_path, ONE_LOOK)
    found = targets(result, "kv_events")
    assert [key for key, target in found.items() if target["verdict"] != "pass"] == [("agg-0", 1)]
    assert found["agg-0", 1]["evidence"] == {
        "tries": 1,
        "worker_id": str(AGG0),
        "block_size": 16,
        "prompt_tokens": 387,
        "hit_rate_new": 0.0,
        "hit_rate_repeated": 0.0,
        "engine_cached_tokens": 384,
    }


def test_a_rank_that_cannot_be_reached_is_not_tried_for_events(tmp_path: Path) -> None:
    scenario = agg()
    scenario.errors[(AGG0, 1)] = (503, "unavailable")
    _, result = check(scenario, tmp_path, ONE_LOOK)
    found = targets(result, "kv_events")
    assert found["agg-0", 1]["verdict"] == "skip"
    assert found["agg-0", 1]["message"].startswith("because rank_routing failed: agg-0 rank 1: HTTP 503")
    assert {target["verdict"] for key, target in found.items() if key != ("agg-0", 1)} == {"pass"}


def test_a_lost_first_event_is_tried_again_with_a_new_prompt(tmp_path: Path) -> None:
    scenario = agg()
    scenario.lost[(AGG0, 1)] = 3  # the first is that of rank_routing
    code, result = check(scenario, tmp_path, PATIENT)
    assert code == 0
    tries = {key: target["evidence"]["tries"] for key, target in targets(result, "kv_events").items()}
    assert tries.pop(("agg-0", 1)) == 3
    assert set(tries.values()) == {1}


def test_registration_waits_for_what_is_still_on_its_way(tmp_path: Path) -> None:
    scenario = agg()
    scenario.looks_until_complete = 5
    code, _ = check(scenario, tmp_path, PATIENT)
    assert code == 0


def test_a_failure_that_only_warns_exits_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario = agg()
    scenario.plan["checks"][2]["on_failure"] = "warn"
    scenario.lost[(AGG0, 1)] = float("inf")
    code, result = check(scenario, tmp_path, ONE_LOOK)
    assert (code, result["verdict"]) == (0, "warn")
    assert "✗ kv_events     FAIL (warning)  5 of 6 targets" in capsys.readouterr().err


def test_disaggregated_pins_both_legs(tmp_path: Path) -> None:
    scenario = disaggregated()
    code, result = check(scenario, tmp_path, ONE_LOOK)
    assert (code, verdicts(result)) == (0, PASSED)
    pins = [{k: v for k, v in body["nvext"].items() if k != "extra_fields"} for body in scenario.requests]
    assert {"prefill_worker_id": PREFILL0, "prefill_dp_rank": 1, "decode_worker_id": DECODE0, "dp_rank": 1} in pins


def test_disaggregated_names_the_leg_that_went_astray(tmp_path: Path) -> None:
    scenario = disaggregated()
    scenario.moved[(DECODE0, 1)] = (DECODE0, 0)
    code, result = check(scenario, tmp_path, ONE_LOOK)
    assert code == 3
    assert targets(result, "rank_routing")["decode-0", 1]["message"].endswith("was answered by decode-0 rank 0")


def test_events_of_a_decode_rank_cannot_be_shown(tmp_path: Path) -> None:
    scenario = disaggregated()
    scenario.plan["checks"][2]["targets"].append({"worker": "decode-0", "dp_rank": 0})
    code, result = check(scenario, tmp_path, ONE_LOOK)
    assert (code, verdicts(result)["kv_events"]) == (0, "skip")
    assert "no KV index of decode workers" in targets(result, "kv_events")["decode-0", 0]["message"]


@pytest.mark.parametrize("only", [[], ["--only", "rank_routing"], ["--only", "kv_events"]])
def test_nobody_listens(only: list[str], tmp_path: Path) -> None:
    scenario = agg()
    with running(scenario):
        argv = scenario.write(tmp_path)
    assert main([*argv, *only], ONE_LOOK) == 3
    result = json.loads((tmp_path / "checks.json").read_text())
    assert result["checks"][0]["verdict"] == "fail"
    url = f"http://127.0.0.1:{scenario.port}/v3/kv/range"
    assert f"agg-0 rank 0: {url}: Connection refused (and 5 more)" in result["checks"][0]["reason"]


def unroutable(scenario: Scenario) -> None:
    scenario.errors[(AGG0, 0)] = (503, "unavailable")


def astray(scenario: Scenario) -> None:
    scenario.moved[(AGG0, 0)] = (AGG0, 1)


def unregistered(scenario: Scenario) -> None:
    forget(scenario, "16c6a2294497530a")


@pytest.mark.parametrize("name", ["rank_routing", "kv_events"])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (unregistered, "agg-0 rank 0: not registered"),
        (unroutable, "agg-0 rank 0: HTTP 503 from the frontend: unavailable"),
        (astray, "agg-0 rank 0: a request pinned to it was answered by agg-0 rank 1"),
    ],
)
def test_a_check_by_itself_says_what_it_needs(
    name: str, change: Callable[[Scenario], None], words: str, tmp_path: Path
) -> None:
    scenario = agg()
    change(scenario)
    code, result = check(scenario, tmp_path, ONE_LOOK, "--only", name)
    assert code == 3
    assert list(verdicts(result)) == [name]
    assert words in targets(result, name)["agg-0", 0]["message"]


def test_a_prefill_rank_without_any_decode_worker(tmp_path: Path) -> None:
    scenario = disaggregated()
    forget(scenario, "6cc8a22944b89e0a")
    _, result = check(scenario, tmp_path, ONE_LOOK, "--only", "rank_routing")
    message = targets(result, "rank_routing")["prefill-0", 1]["message"]
    assert message == "prefill-0 rank 1: no decode worker is registered to pair it with"


def test_events_of_a_rank_that_does_not_publish(tmp_path: Path) -> None:
    scenario = agg()
    source_of_unplanned_rank(scenario)
    scenario.lost[(AGG0, 1)] = float("inf")
    _, result = check(scenario, tmp_path, ONE_LOOK, "--only", "kv_events")
    assert targets(result, "kv_events")["agg-0", 1]["message"].endswith("; the plan has no KV publisher for it")


def test_a_frontend_without_metrics(tmp_path: Path) -> None:
    scenario = agg()
    scenario.metrics_status = 503
    _, result = check(scenario, tmp_path, ONE_LOOK)
    assert verdicts(result) == UNREGISTERED
    assert result["checks"][0]["reason"].endswith("/metrics: HTTP 503 (and 5 more)")


def test_a_router_that_does_not_tell_leaves_it_to_discovery(tmp_path: Path) -> None:
    scenario = agg()
    scenario.plan["frontends"][0]["argv"] = ["--router-mode", "round-robin"]
    del scenario.plan["checks"][1:]
    scenario.metrics = ""
    code, result = check(scenario, tmp_path, ONE_LOOK)
    assert code == 0
    found = targets(result, "registration")["agg-0", 1]
    assert (found["message"], found["evidence"]["router_registered"]) == ("registered in discovery", None)


def test_the_timeout_of_the_plan_is_that_of_the_check(tmp_path: Path) -> None:
    scenario = agg()
    scenario.plan["checks"][2]["timeout"] = 60
    scenario.lost[(AGG0, 1)] = 3
    code, _ = check(scenario, tmp_path, ONE_LOOK)
    assert code == 0


@pytest.mark.parametrize(
    ("timeout", "expected"),
    [(None, (60, 20, 15)), (300, (60, 300, 300)), (5, (5, 5, 5))],
)
def test_limits_of_a_check(timeout: float | None, expected: tuple[float, float, float]) -> None:
    limits = Limits().for_check(timeout)
    assert (limits.request, limits.registration, limits.kv_events) == expected
