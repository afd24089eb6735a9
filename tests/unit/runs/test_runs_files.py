"""Run directories: making, recording, finding and reading them."""

from __future__ import annotations

import json
import threading
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from situations import PLAN, RECORD

from srtctl.runs.create import new_run_dir, run_stem
from srtctl.runs.events import Event, EventFollower, parse_event, read_events
from srtctl.runs.find import RunNotFoundError, find_run, list_runs
from srtctl.runs.layout import RunDir
from srtctl.runs.load import read_run
from srtctl.runs.logs import last_lines, log_names, read_from
from srtctl.runs.model import Node
from srtctl.runs.record import read_record, write_record

# ---------------------------------------------------------------------------------------------------- making


@pytest.mark.parametrize(
    ("existing", "expected"),
    [
        ([], "demo-1"),
        (["demo-1", "demo-2"], "demo-3"),
        (["demo-9", "demo-10"], "demo-11"),
        (["demo-x", "demo", "other-7", "demo-1-5"], "demo-1"),
    ],
)
def test_the_next_number(tmp_path: Path, existing: list[str], expected: str) -> None:
    for name in existing:
        (tmp_path / "runs" / name).mkdir(parents=True)
    assert new_run_dir(tmp_path / "runs", "demo") == tmp_path / "runs" / expected


def test_two_at_once_get_different_directories(tmp_path: Path) -> None:
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(new_run_dir(tmp_path, "demo"))) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(path.name for path in found) == sorted(f"demo-{n}" for n in range(1, 13))


@pytest.mark.parametrize(
    ("name", "stem"),
    [("qwen3-0.6b_agg", "qwen3-0.6b_agg"), ("a b/c", "a-b-c"), ("../x", "x"), ("é", "run"), ("$(rm)", "rm")],
)
def test_names_are_safe_in_paths_and_scripts(name: str, stem: str) -> None:
    assert run_stem(name) == stem


# ---------------------------------------------------------------------------------------------------- recording


def test_record_round_trip(tmp_path: Path) -> None:
    write_record(tmp_path / "run.json", RECORD)
    assert read_record(tmp_path / "run.json") == RECORD
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
    assert RECORD.submitted_at == 1764452000.0


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", json.dumps({"name": "x"}), json.dumps(asdict(RECORD) | {"submitted": "yesterday"})],
)
def test_a_broken_record_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    assert read_record(tmp_path / "run.json") is None


def test_fields_of_later_versions_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(asdict(RECORD) | {"colour": "red"}))
    assert read_record(tmp_path / "run.json") == RECORD


# ---------------------------------------------------------------------------------------------------- finding


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """demo-2 (job 21), demo-10 (job 22, the newest), other-1 (job 7), a bundle `by-hand` without a record."""
    folder = tmp_path / "runs"
    for name, job, minute in (("demo-2", "21", 1), ("demo-10", "22", 3), ("other-1", "7", 2)):
        (folder / name).mkdir(parents=True)
        record = replace(RECORD, run=name, job_id=job, submitted=f"2099-11-29T21:0{minute}:00+00:00")
        write_record(folder / name / "run.json", record)
    (folder / "by-hand").mkdir()
    (folder / "by-hand" / "plan.json").write_text("{}")
    (folder / "not-a-run").mkdir()
    (folder / "notes.txt").write_text("")
    return folder


def test_list_newest_first(runs: Path) -> None:
    assert [path.name for path in list_runs(runs)] == ["demo-10", "other-1", "demo-2", "by-hand"]
    assert list_runs(runs / "missing") == []


@pytest.mark.parametrize(
    ("ref", "expected"),
    [
        ("demo-2", "demo-2"),
        ("demo", "demo-10"),
        ("21", "demo-2"),
        ("7", "other-1"),
        ("by-hand", "by-hand"),
        ("./runs/demo-2", "demo-2"),
        ("runs/demo-2/", "demo-2"),
    ],
)
def test_find(runs: Path, ref: str, expected: str) -> None:
    assert find_run(ref, runs, runs.parent) == runs / expected


def test_find_here(runs: Path, tmp_path: Path) -> None:
    assert find_run(".", tmp_path / "elsewhere", runs / "demo-2") == runs / "demo-2"
    assert find_run("demo-2", tmp_path / "elsewhere", runs) == runs / "demo-2"
    assert find_run(str(runs / "demo-2"), tmp_path / "elsewhere", tmp_path) == runs / "demo-2"


@pytest.mark.parametrize(
    ("ref", "message", "hint"),
    [
        ("dmo", "no run `dmo`", "did you mean `demo`?"),
        ("demo-3", "no run `demo-3`", "did you mean"),
        ("oth", "no run `oth`", "did you mean `other`?"),
        ("99", "no run `99`", "the latest is `demo-10`"),
        ("demo.yaml", "no run `demo.yaml`", "that is a recipe"),
        ("runs/not-a-run", "is not a run directory", "lists the runs"),
    ],
)
def test_not_found(runs: Path, ref: str, message: str, hint: str) -> None:
    with pytest.raises(RunNotFoundError, match=message) as caught:
        find_run(ref, runs, runs.parent)
    assert hint in caught.value.hint


def test_nothing_was_ever_submitted(tmp_path: Path) -> None:
    with pytest.raises(RunNotFoundError) as caught:
        find_run("demo", tmp_path / "runs", tmp_path)
    assert "srtctl apply" in caught.value.hint


# ---------------------------------------------------------------------------------------------------- events


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"ts": 1.5, "node": null, "event": "serving"}', Event(1.5, "serving")),
        ('{"ts": 2, "node": 1, "event": "exited", "code": 1}', Event(2.0, "exited", 1, {"code": 1})),
        ('{"ts": 1.5, "event": "serving"}', Event(1.5, "serving")),
        ('{"ts": 1.5, "node": nu', None),
        ("\0\0\0\0", None),
        ("", None),
        ("[1]", None),
        ('{"event": "serving"}', None),
        ('{"ts": "soon", "event": "serving"}', None),
        ('{"ts": 1, "event": 7}', None),
        ('{"ts": 1, "node": "a", "event": "x"}', None),
    ],
)
def test_parse_event(line: str, expected: Event | None) -> None:
    assert parse_event(line) == expected


def test_events_are_merged_by_time_and_a_torn_line_waits(tmp_path: Path) -> None:
    job, node = tmp_path / "job.jsonl", tmp_path / "node-0.jsonl"
    job.write_text('{"ts":1,"event":"a"}\n{"ts":3,"event":"c"}\n{"ts":5,"ev')
    node.write_text('{"ts":2,"node":0,"event":"b"}\nrubbish\n')
    follower = EventFollower(tmp_path)
    assert [event.name for event in follower.poll()] == ["a", "b", "c"]
    assert follower.poll() == []
    with job.open("a") as file:
        file.write('ent":"e"}\n')
    with node.open("a") as file:
        file.write('{"ts":4,"node":0,"event":"d"}\n')
    assert [event.name for event in follower.poll()] == ["d", "e"]
    assert [event.name for event in read_events(tmp_path)] == ["a", "b", "c", "d", "e"]


def test_a_new_job_begins_its_files_anew(tmp_path: Path) -> None:
    job = tmp_path / "job.jsonl"
    job.write_text('{"ts":1,"event":"a"}\n{"ts":2,"event":"b"}\n')
    follower = EventFollower(tmp_path)
    follower.poll()
    job.write_text('{"ts":9,"event":"z"}\n')
    assert [event.name for event in follower.poll()] == ["z"]


def test_no_events_yet(tmp_path: Path) -> None:
    assert read_events(tmp_path / "events") == []


# ---------------------------------------------------------------------------------------------------- reading


def test_read_run(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "demo-1")
    run.prepare()
    run.plan.write_text(json.dumps(PLAN))
    write_record(run.record, RECORD)
    run.nodes.write_text("0\tsandbox-0\t10.0.0.1\n1\tsandbox-1\t10.0.0.2\n2\ttorn")
    run.end.write_text('{"state": "failed"}')
    (run.events / "job.jsonl").write_text('{"ts":1,"event":"job_started","job_id":"12"}\n')
    files = read_run(run.root)
    assert (files.run, files.plan, files.record, files.job_id) == ("demo-1", PLAN, RECORD, "12")
    assert files.nodes == {0: Node("sandbox-0", "10.0.0.1"), 1: Node("sandbox-1", "10.0.0.2")}
    assert files.end == {"state": "failed"}
    assert files.checks is None


def test_an_empty_directory_reads_as_nothing(tmp_path: Path) -> None:
    files = read_run(tmp_path)
    assert (files.plan, files.record, files.nodes, files.events, files.end) == ({}, None, {}, (), None)


# ---------------------------------------------------------------------------------------------------- logs


@pytest.mark.parametrize(
    ("name", "files"),
    [
        (
            "agg-0",
            ("agg-0.log", "agg-0.0.engine.log", "agg-0.0.sidecar.log", "agg-0.1.engine.log", "agg-0.1.sidecar.log"),
        ),
        ("agg-0.1", ("agg-0.1.engine.log", "agg-0.1.sidecar.log")),
        ("agg-0.1.sidecar", ("agg-0.1.sidecar.log",)),
        ("etcd", ("etcd.log", "etcd.etcd.log")),
        ("frontend-0", ("frontend-0.log",)),
        ("probe", ("probe.log",)),
        ("job.12", ("job.12.log",)),
    ],
)
def test_log_names(name: str, files: tuple[str, ...]) -> None:
    existing = ["job.12.log", "probe.log", "etcd.etcd.log", "etcd.log", "agg-0.0.engine.log", "core.123"]
    assert log_names(PLAN, existing)[name] == files


def test_unknown_logs_are_not_offered() -> None:
    assert not {"agg-1", "core", "core.123"} & log_names(PLAN, ["core.123"]).keys()


@pytest.mark.parametrize(("count", "expected"), [(None, "a\nb\nc"), (0, ""), (1, "c"), (2, "b\nc"), (9, "a\nb\nc")])
def test_last_lines(tmp_path: Path, count: int | None, expected: str) -> None:
    log = tmp_path / "x.log"
    log.write_text("a\nb\nc")
    assert last_lines(log, count) == (expected, 5)


def test_reading_on(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    assert last_lines(log, None) == ("", 0)
    assert read_from(log, 0) == ("", 0)
    log.write_bytes(b"one\ntw")
    assert read_from(log, 0) == ("one\n", 4)
    log.write_bytes(b"one\ntwo\xff\n")
    assert read_from(log, 4) == ("two\N{REPLACEMENT CHARACTER}\n", 9)
    log.write_bytes(b"new\n")
    assert read_from(log, 9) == ("new\n", 4)
