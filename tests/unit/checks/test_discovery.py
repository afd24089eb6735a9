from __future__ import annotations

import json
from pathlib import Path

import pytest

from srtctl.checks.deployment import EtcdDiscovery, FileDiscovery
from srtctl.checks.discovery import Card, Source, parse, read
from srtctl.checks.net import NetError

from .scenario import AGG0, AGG1, AGG2, DATA, DECODE0, PREFILL0, agg, answering, as_text, recorded, running

LEADER = Card(
    key="v1/mdc/dynamo/backend/generate/16c6a2294497530a",
    worker_id=AGG0,
    model="tiny",
    worker_type="aggregated",
    first_rank=0,
    ranks=2,
    block_size=16,
    context_length=4096,
    status_servers=frozenset({"10.88.0.1:21149"}),
    group="dist_init:tcp://10.88.0.1:5000",
)


def test_cards_and_sources_of_etcd() -> None:
    snapshot = parse(as_text(recorded("agg-etcd.json")))
    assert snapshot.cards[0] == LEADER
    assert [card.worker_id for card in snapshot.cards] == [AGG0, AGG1, AGG2]
    assert {(s.worker_id, s.dp_rank) for s in snapshot.sources} == {(w, r) for w in (AGG0, AGG1, AGG2) for r in (0, 1)}
    assert snapshot.unreadable == ()


def test_cards_of_both_roles() -> None:
    snapshot = parse(as_text(recorded("pd-etcd.json")))
    assert [(card.worker_id, card.worker_type) for card in snapshot.cards] == [
        (DECODE0, "decode"),
        (PREFILL0, "prefill"),
    ]
    assert {source.worker_id for source in snapshot.sources} == {PREFILL0}


def test_the_file_backend_is_the_same_tree(tmp_path: Path) -> None:
    for name, value in json.loads((DATA / "agg-file.json").read_text()).items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value))
    snapshot = read(FileDiscovery(tmp_path), timeout=1)
    assert sorted(address for card in snapshot.cards for address in card.status_servers) == [
        "10.88.0.1:21170",
        "10.88.0.2:21177",
        "10.88.0.2:21183",
    ]
    assert len(snapshot.sources) == 6


def test_an_empty_file_backend_has_nothing(tmp_path: Path) -> None:
    assert read(FileDiscovery(tmp_path), timeout=1) == parse({})


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"card_json": null}', '{"card_json": {"runtime_config": {}}}'])
def test_a_card_of_another_shape_is_named(text: str) -> None:
    assert parse({"v1/mdc/a/b/c/1": text}).unreadable == ("v1/mdc/a/b/c/1",)


def test_other_topics_are_not_kv_sources() -> None:
    entries = {"v1/event_sources/namespace/d/topic/loads/1": "{}", "v1/instances/d/b/g/1": "{}"}
    assert parse(entries) == parse({})


def test_etcd_is_asked_until_an_endpoint_answers() -> None:
    with running(agg()) as scenario:
        endpoints = ("http://127.0.0.1:1", f"http://127.0.0.1:{scenario.port}")
        assert read(EtcdDiscovery(endpoints), timeout=30).cards[0] == LEADER


@pytest.mark.parametrize(
    ("status", "text", "words"),
    [
        (404, "", "HTTP 404"),
        (200, "", "not the answer of etcd's JSON gateway"),
        (200, '{"kvs": [{}]}', "not the answer of etcd's JSON gateway"),
    ],
)
def test_every_endpoint_that_failed_is_named(status: int, text: str, words: str) -> None:
    with answering(status, text) as url, pytest.raises(NetError) as caught:
        read(EtcdDiscovery(("http://127.0.0.1:1", url)), timeout=30)
    assert str(caught.value) == f"http://127.0.0.1:1/v3/kv/range: Connection refused; {url}: {words}"


def test_a_file_backend_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "v1" / "mdc" / "folder").mkdir(parents=True)
    with pytest.raises(NetError, match="mdc: Is a directory"):
        read(FileDiscovery(tmp_path), timeout=1)


def test_a_source_names_its_worker_and_rank() -> None:
    text = json.dumps({"metadata": {"worker": {"worker_id": 5, "dp_rank": 3}}})
    key = "v1/event_sources/namespace/d/component/b/endpoint/g/topic/kv-events/ff"
    assert parse({key: text}).sources == (Source(key, 5, 3),)
