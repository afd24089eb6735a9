"""Data, places and text of a document."""

from __future__ import annotations

from pathlib import Path

import pytest

from srtctl.diagnostics import Span
from srtctl.reading.document import dotted, matches, parse_yaml, read_yaml, value_at, with_source_text

TEXT = """\
# a comment
name: demo
roles:
  agg: {nodes: 2, env: {RATIO: 1.50, MASK: 0x10, ON: yes}}
  list:
    - one
    - b: 'two'
long: |
  text
  of two lines
"""


def test_every_place() -> None:
    document = parse_yaml(TEXT, "f")
    assert document.diagnostics == ()
    expected = {
        (): (2, 1, 0),
        ("name",): (2, 7, 11),
        ("roles",): (4, 3, 0),
        ("roles", "agg"): (4, 8, 59),
        ("roles", "agg", "nodes"): (4, 16, 17),
        ("roles", "agg", "env", "RATIO"): (4, 32, 36),
        ("roles", "list", 0): (6, 7, 10),
        ("roles", "list", 1, "b"): (7, 10, 15),
        ("long",): (8, 7, 0),
    }
    for path, (line, column, end) in expected.items():
        assert document.span(path) == Span("f", line, column, end), path
    assert document.span(("roles", "agg", "nodes"), key=True) == Span("f", 4, 9, 14)
    assert document.span(("roles", "list", 0), key=True) == Span("f", 6, 7, 10)


def test_what_is_missing_is_placed_at_the_nearest_parents_key() -> None:
    document = parse_yaml(TEXT, "f")
    assert document.span(("roles", "agg", "gpus", "x")) == Span("f", 4, 3, 6)
    assert document.span(("model",)) == Span("f", 2, 1, 0)


def test_columns_count_characters() -> None:
    assert parse_yaml("{ä: 'ö', b: 1}", "f").span(("b",)) == Span("f", 1, 13, 14)


def test_source_text() -> None:
    document = parse_yaml(TEXT, "f")
    assert document.text(("roles", "agg", "env", "RATIO")) == "1.50"
    assert document.text(("roles", "agg")) is None
    assert document.text(("nothing",)) is None
    data = with_source_text(document, ["roles.*.env.*"])
    assert data["roles"]["agg"] == {"nodes": 2, "env": {"RATIO": "1.50", "MASK": "0x10", "ON": "yes"}}
    assert document.data["roles"]["agg"]["env"]["MASK"] == 16


@pytest.mark.parametrize(
    ("words", "path"),
    [
        ("", ()),
        ("a.b", ("a", "b")),
        ("x.y.z", ("x.y", "z")),
        ("x.y.z.more", ("x.y", "z", "more")),
        ("l.1.k", ("l", 1, "k")),
        ("l.9.k", ("l", 9, "k")),
        ("l.k", ("l", "k")),
        ("n.1", ("n", "1")),
    ],
)
def test_find(words: str, path: tuple[str | int, ...]) -> None:
    document = parse_yaml("{x.y: {z: 1}, l: [1, {k: 2}], n: {'1': 2}}", "f")
    assert document.find(words) == path
    assert dotted(path) == words


def test_anchors_aliases_and_merge_keys() -> None:
    document = parse_yaml(
        "base: &base {a: 1, b: 2}\nmore: &more {b: 3, c: 4}\n"
        "one: {<<: *base, b: 9}\ntwo: {<<: [*base, *more]}\nthree: *base\nquoted: {'<<': 1}\n",
        "f",
    )
    assert document.diagnostics == ()
    assert document.data["one"] == {"a": 1, "b": 9}
    assert document.data["two"] == {"a": 1, "b": 2, "c": 4}
    assert document.data["three"] == {"a": 1, "b": 2}
    assert document.data["quoted"] == {"<<": 1}
    assert document.span(("two", "c")) == Span("f", 2, 23, 24)
    document.data["three"]["a"] = 5
    assert document.data["base"]["a"] == 1


def test_a_byte_order_mark_and_carriage_returns(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_bytes(b"\xef\xbb\xbfname: x\r\nb:\r\n  c: 1\r\n")
    document = read_yaml(path)
    assert document.data == {"name": "x", "b": {"c": 1}}
    assert document.span(("b", "c")) == Span(str(path), 3, 6, 7)


def test_matches_and_value_at() -> None:
    data = {"a": {"x": {"k": 1}, "y": {"k": 2, "l": 3}, "z": 4}, "m": [7, {"n": 8}]}
    assert list(matches(data, "a.*.k")) == [(("a", "x", "k"), 1), (("a", "y", "k"), 2)]
    assert list(matches(data, "a.*.?")) == [(("a", "x", "k"), 1), (("a", "y", "k"), 2), (("a", "y", "l"), 3)]
    assert value_at(data, ("m", 1, "n")) == 8
    assert value_at(data, ("m", 2)) is None
    assert value_at(data, ("a", "z", "deep")) is None
