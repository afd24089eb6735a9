from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from srtctl.checks import logs
from srtctl.checks.logs import Leg
from srtctl.checks.pinning import Pin
from srtctl.checks.transfer import complaint, room_complaint

from .running_checks import ranks, run_only
from .scenario import DECODE0, PREFILL0, Scenario, disaggregated

SERVED = {"prefill_worker_id": 1, "prefill_dp_rank": 1, "decode_worker_id": 2, "decode_dp_rank": 0}


def routed(folder: Path) -> Scenario:
    """A P/D deployment whose frontend logs what it routes."""
    (folder / "logs").mkdir()
    scenario = disaggregated()
    scenario.route_log = folder / "logs" / "frontend-0.frontend.log"
    scenario.add_check("transfer", ranks("prefill-0", "decode-0"))
    return scenario


def test_both_legs_are_found_by_the_request_id(tmp_path: Path) -> None:
    check = run_only(routed(tmp_path), tmp_path, "transfer")
    assert check["verdict"] == "pass"
    evidence = check["targets"][1]["evidence"]
    assert evidence["legs"] == {"Prefill": f"{PREFILL0}/1 success", "Decode": f"{DECODE0}/1 success"}
    assert evidence["bootstrap_rooms"] == {"prefill": None, "decode": None}


def test_a_leg_dropped_after_the_last_token_ended_well(tmp_path: Path) -> None:
    scenario = routed(tmp_path)
    scenario.phases["Decode"] = "cancelled"
    assert run_only(scenario, tmp_path, "transfer")["verdict"] == "pass"


ASTRAY: dict[str, tuple[Callable[[Scenario], object], str]] = {
    "no decode leg": (lambda s: s.phases.pop("Decode"), "the frontend logged no Decode leg"),
    "no prefill leg": (lambda s: s.phases.pop("Prefill"), "the frontend logged no Prefill leg"),
    "another rank": (
        lambda s: s.logged_as.update({(DECODE0, 0): (DECODE0, 1)}),
        f"its Decode leg went to worker id {DECODE0} rank 1, not where it was pinned",
    ),
}


@pytest.mark.parametrize("name", ASTRAY)
def test_a_leg_that_does_not_fit(name: str, tmp_path: Path) -> None:
    change, words = ASTRAY[name]
    scenario = routed(tmp_path)
    change(scenario)
    target = run_only(scenario, tmp_path, "transfer")["targets"][0]
    assert target["verdict"] == "fail"
    assert target["message"].startswith("prefill-0 rank 0: request request-")
    assert target["message"].endswith(words)


def test_a_frontend_that_logs_nothing_leaves_it_open(tmp_path: Path) -> None:
    scenario = routed(tmp_path)
    scenario.route_log = None
    check = run_only(scenario, tmp_path, "transfer")
    assert check["verdict"] == "skip"
    assert "logs/frontend-0.frontend.log has no routed requests at all" in check["reason"]


@pytest.mark.parametrize(
    ("legs", "words"),
    [
        ({"Prefill": Leg("Prefill", 1, 1, "success"), "Decode": Leg("Decode", 2, 0, "success")}, ""),
        ({"Prefill": Leg("Prefill", 1, 1, "error"), "Decode": Leg("Decode", 2, 0, "success")}, "ended as 'error'"),
        ({"Prefill": Leg("Prefill", 1, 0, "success"), "Decode": Leg("Decode", 2, 0, "success")}, "not where it was"),
    ],
)
def test_complaints_about_legs(legs: dict[str, Leg], words: str) -> None:
    assert words in complaint(legs, SERVED)
    assert bool(words) == bool(complaint(legs, SERVED))


def test_both_legs_on_one_worker() -> None:
    legs = {"Prefill": Leg("Prefill", 1, 1, "success"), "Decode": Leg("Decode", 1, 0, "success")}
    assert (
        complaint(legs, {**SERVED, "decode_worker_id": 1}) == "both legs ran on one worker, so nothing was transferred"
    )


@pytest.mark.parametrize(
    ("rooms", "words"),
    [
        ({"prefill": 7, "decode": 7}, ""),
        ({"prefill": None, "decode": 7}, ""),
        ({"prefill": 7, "decode": 9}, "bootstrap room 7, the decode engine looked in 9"),
        ({"prefill": 8, "decode": 8}, "bootstrap room 8 belongs to prefill rank 0"),
    ],
)
def test_complaints_about_rooms(rooms: dict[str, int | None], words: str) -> None:
    found = room_complaint(rooms, Pin({}, SERVED), 2)
    assert words in found
    assert bool(words) == bool(found)


def test_rooms_are_read_where_an_engine_logs_them() -> None:
    log = ["Prefill: rid=a room=11 x", "Prefill: rid=b bootstrap_room=12", "Prefill: rid=c"]
    assert [logs.room(log, rid) for rid in ("rid=a", "rid=b", "rid=c", "rid=d")] == [11, 12, None, None]


def test_logs_are_read_without_colours_and_from_their_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_text("first\n\x1b[32mINFO\x1b[0m last\n")
    assert logs.lines(tmp_path, "a") == ["first", "INFO last"]
    monkeypatch.setattr(logs, "TAIL_BYTES", 5)
    assert logs.lines(tmp_path, "a") == ["last"]
    assert logs.lines(tmp_path, "missing") == []
