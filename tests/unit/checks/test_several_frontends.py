"""Two frontends behind nginx: every frontend's router is looked at, and clients' requests go through nginx."""

from __future__ import annotations

import json
from collections.abc import Callable, ItemsView, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from srtctl.checks.__main__ import main
from srtctl.checks.frontend import STARTED
from srtctl.checks.net import fetch

from .running_checks import DEPLOYMENT, ONE_LOOK, ranks
from .scenario import AGG0, AGG1, Rank, Scenario, agg, disaggregated, serving


class Index(dict[Rank, set[str]]):
    """What a router knows by the events of all frontends' requests, but for the ranks that it is `deaf` to."""

    def __init__(self, events: dict[Rank, set[str]], deaf: set[Rank]) -> None:
        super().__init__()
        self.events, self.deaf = events, deaf

    def __getitem__(self, rank: Rank) -> set[str]:
        return set() if rank in self.deaf else self.events[rank]

    def items(self) -> ItemsView[Rank, set[str]]:  # type: ignore[override]  # typeshed names the concrete view
        return {rank: texts for rank, texts in self.events.items() if rank not in self.deaf}.items()


@dataclass
class Two:
    """`second` sees the events of `first`, and the other way round; `turns` is what nginx does with requests."""

    first: Scenario = field(default_factory=agg)
    second: Scenario = field(default_factory=agg)
    deaf: set[Rank] = field(default_factory=set)
    turns: tuple[int, ...] = (0, 1)

    @contextmanager
    def running(self) -> Iterator[None]:
        self.second.known = Index(self.first.known, self.deaf)
        self.second.cached = self.first.cached
        with serving(self._answers(self.first)) as self.first.port, serving(self._answers(self.second)) as second:
            self.second.port = second
            ports = cycle([(self.first.port, second)[turn] for turn in self.turns])
            with serving(lambda path, body: _forward(next(ports), path, body)) as self.first.entry:
                other = {"name": "frontend-1", "port": second, "env": {}}
                self.first.plan["frontends"].append({**self.first.plan["frontends"][0], **other})
                yield

    def _answers(self, scenario: Scenario) -> Callable[[str, bytes], tuple[int, str]]:
        def answer(path: str, body: bytes) -> tuple[int, str]:
            if path == "/metrics":
                label = 'endpoint="chat_completions",model="tiny"'
                count = f"\n{STARTED}{{{label}}} {len(scenario.requests)}\n"
                return scenario.metrics_status, scenario.metrics + count
            if path == "/v1/models":
                return 200, json.dumps({"data": [{"id": model} for model in scenario.models or ()]})
            if path == "/v3/kv/range":
                return 200, json.dumps(scenario.range(json.loads(body)))
            status, content = scenario.chat(json.loads(body))
            return status, json.dumps(content)

        return answer

    def run(self, name: str, folder: Path) -> Any:
        with self.running():
            main([*self.first.write(folder), "--only", name], ONE_LOOK)
        (check,) = json.loads((folder / "checks.json").read_text())["checks"]
        return check


def _forward(port: int, path: str, body: bytes) -> tuple[int, str]:
    answer = fetch(f"http://127.0.0.1:{port}{path}", json.loads(body) if body else None, timeout=5)
    return answer.status, answer.body


def test_healthy_frontends_pass_and_each_was_asked(tmp_path: Path) -> None:
    two = Two()
    for name, settings in (("cache_reuse", {"repeats": 8}), ("load", {"requests": 20})):
        two.first.add_check(name, DEPLOYMENT if name == "load" else ranks("agg-0", "agg-1"), **settings)
    with two.running():
        assert main(two.first.write(tmp_path), ONE_LOOK) == 0
    found = {c["name"]: c["targets"] for c in json.loads((tmp_path / "checks.json").read_text())["checks"]}
    both = ["frontend-0", "frontend-1"]
    assert found["registration"][0]["evidence"]["router_registered"] == dict.fromkeys(both, True)
    assert found["registration"][0]["message"] == "registered in discovery and with every frontend's router"
    assert list(found["kv_events"][0]["evidence"]["hit_rate_repeated"]) == both
    assert found["kv_events"][0]["message"].startswith("every frontend's router knew a prompt")
    assert found["load"][0]["evidence"]["requests_by_frontend"] == dict.fromkeys(both, 10)


def unregistered(two: Two) -> None:
    two.second.metrics = "\n".join(line for line in two.second.metrics.splitlines() if f'"{AGG0}"' not in line)


#: name: (what is wrong, the check, the words of the failed target or of the check).
FAULTS: dict[str, tuple[Callable[[Two], object], str, str]] = {
    "a router without a worker": (
        unregistered,
        "registration",
        f"agg-0 rank 0: registered in discovery, but not with frontend-1's router as worker id {AGG0}",
    ),
    "a frontend without the model": (
        lambda two: setattr(two.second, "models", ()),
        "registration",
        "frontend-1 does not list model 'tiny', it lists none",
    ),
    "a frontend that cannot reach a rank": (
        lambda two: two.second.errors.update({(AGG0, 0): (500, "boom")}),
        "rank_routing",
        "agg-0 rank 0: HTTP 500 from the frontend: boom",
    ),
    "a router that is deaf to a rank": (
        lambda two: two.deaf.add((AGG0, 0)),
        "kv_events",
        "agg-0 rank 0: no Stored event reached the router of frontend-1 in",
    ),
    "a router that ignores what it knows": (
        lambda two: setattr(two.second, "unpinned_to", (AGG1, 0)),
        "kv_events",
        "agg-0 rank 0: the router of frontend-1 knows its blocks, but sent the same prompt without a pin to another",
    ),
    "a repeat that one frontend cannot place": (
        lambda two: two.deaf.add((AGG0, 0)),
        "cache_reuse",
        "agg-0 rank 0: the router never knew a prompt that it had answered",
    ),
    "nginx that knows one frontend": (
        lambda two: setattr(two, "turns", (1,)),
        "load",
        "nginx sent all 20 requests to one of frontend-0, frontend-1",
    ),
    "a frontend that does not say what it had": (
        lambda two: setattr(two.second, "metrics_status", 503),
        "load",
        "how many requests each frontend had is not known: http://127.0.0.1:",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_wrong_at_one_frontend_is_named(name: str, tmp_path: Path) -> None:
    change, check, words = FAULTS[name]
    two = Two()
    change(two)
    if check == "cache_reuse":
        two.first.add_check(check, ranks("agg-0", "agg-1"), repeats=4)
    if check == "load":
        two.first.add_check(check, DEPLOYMENT, requests=20)
    result = two.run(check, tmp_path)
    assert result["verdict"] == "fail"
    messages = [target["message"] for target in result["targets"] if target["verdict"] == "fail"]
    assert any(message.startswith(words) for message in (*messages, result["reason"])), (messages, result["reason"])


def test_few_requests_may_all_go_to_one_frontend(tmp_path: Path) -> None:
    two = Two(turns=(0,))
    two.first.add_check("load", DEPLOYMENT, requests=5)
    result = two.run("load", tmp_path)
    assert result["verdict"] == "pass"
    assert result["targets"][0]["evidence"]["requests_by_frontend"] == {"frontend-0": 5, "frontend-1": 0}


def test_the_legs_of_a_request_are_found_whichever_frontend_logged_them(tmp_path: Path) -> None:
    two = Two(disaggregated(), disaggregated(), turns=(1,))
    (tmp_path / "logs").mkdir()
    two.second.route_log = tmp_path / "logs" / "frontend-1.frontend.log"
    two.first.add_check("transfer", ranks("prefill-0"))
    result = two.run("transfer", tmp_path)
    assert (result["verdict"], result["reason"]) == ("pass", "")
