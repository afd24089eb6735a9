"""--set and --unset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from recipe_texts import HAPPY

from srtctl.diagnostics import Span
from srtctl.reading.document import YamlDocument, parse_yaml, value_at
from srtctl.recipe.load import load_recipe
from srtctl.recipe.overrides import apply_overrides

DOCUMENT = parse_yaml("a: {b: 1, l: [1, {k: 2}], x.y: 3, on: true}\ns: text\nempty:\n", "f")


def apply(sets: tuple[str, ...] = (), unsets: tuple[str, ...] = ()) -> YamlDocument:
    return apply_overrides(DOCUMENT, sets, unsets)


@pytest.mark.parametrize(
    ("option", "path", "value"),
    [
        ("a.b=2", ("a", "b"), 2),
        ("a.b=", ("a", "b"), None),
        ("a.b=yes", ("a", "b"), "yes"),
        ("a.b='2'", ("a", "b"), "2"),
        ("a.b=true", ("a", "b"), True),
        ("a.b=x=y", ("a", "b"), "x=y"),
        ("a.b={c: [1, 2]}", ("a", "b"), {"c": [1, 2]}),
        ("a.new.deep=1", ("a", "new", "deep"), 1),
        ("empty.key=1", ("empty", "key"), 1),
        ("a.on.key=1", ("a", "on", "key"), 1),
        ("a.l.0=9", ("a", "l", 0), 9),
        ("a.l.1.k=9", ("a", "l", 1, "k"), 9),
        ("a.x.y=4", ("a", "x.y"), 4),
        ("s=1e-5", ("s",), 1e-05),
    ],
)
def test_set(option: str, path: tuple[str | int, ...], value: Any) -> None:
    document = apply((option,))
    assert document.diagnostics == ()
    assert value_at(document.data, path) == value
    span = document.span(path, key=True)
    assert span is not None
    assert span.file == f"--set {option}"
    assert value_at(DOCUMENT.data, ("a", "b")) == 1


def test_spans_of_what_was_set_are_columns_of_the_option() -> None:
    document = apply(("a.new={c: [1, 2]}",))
    assert document.span(("a", "new", "c", 1)) == Span("--set a.new={c: [1, 2]}", 1, 15, 16)
    assert document.span(("a", "new", "c"), key=True) == Span("--set a.new={c: [1, 2]}", 1, 8, 9)
    assert document.span(("a", "new"), key=True) == Span("--set a.new={c: [1, 2]}", 1, 1, 6)
    assert document.text(("a", "new", "c", 1)) == "2"


def test_places_below_what_was_replaced_are_gone() -> None:
    document = apply(("a.l=5",))
    assert ("a", "l", 0) not in document.places
    assert ("a", "b") in document.places


def test_the_later_option_wins_and_unset_comes_first() -> None:
    assert value_at(apply(("a.b=2", "a.b=3")).data, ("a", "b")) == 3
    assert apply(("a.k=1",), ("a",)).data["a"] == {"k": 1}


def test_unset() -> None:
    document = apply(unsets=("a.b", "s"))
    assert "b" not in document.data["a"]
    assert "s" not in document.data
    assert "b" in DOCUMENT.data["a"]
    assert ("a", "b") not in document.places


@pytest.mark.parametrize(
    ("sets", "unsets", "code", "message"),
    [
        (("a.b",), (), "override/syntax", "`a.b` is no `path=value`"),
        (("=1",), (), "override/syntax", "`=1` is no `path=value`"),
        (("s.k=1",), (), "override/path", '`s` is "text": `k` cannot be set in it'),
        (("a.b.c=1",), (), "override/path", "`a.b` is 1: `c` cannot be set in it"),
        (("a.l.7=1",), (), "override/path", "`a.l` is a list: `7` cannot be set in it"),
        (("a.l.k=1",), (), "override/path", "`a.l` is a list: `k` cannot be set in it"),
        (("a.b=[1",), (), "yaml/syntax", "not closed"),
        (("a.b=010",), (), "yaml/leading-zero", "two ways"),
        ((), ("a.c",), "override/path", "`a.c` is not in f"),
        ((), ("a.b.c",), "override/path", "`a.b.c` is not in f"),
        ((), ("",), "override/path", "`` is not in f"),
    ],
)
def test_what_cannot_be_done(sets: tuple[str, ...], unsets: tuple[str, ...], code: str, message: str) -> None:
    [found] = apply(sets, unsets).diagnostics
    assert found.code == code
    assert message in found.message
    assert found.span is not None
    assert found.span.file.startswith("--set " if sets else "--unset ")


def test_unset_hints_at_the_nearest_key(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(HAPPY)
    [found] = load_recipe(path, unset=["roles.agg.kv-event"]).diagnostics
    assert found.hint == "did you mean `kv_events`?"


def test_through_the_loader(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(HAPPY)
    loaded = load_recipe(
        path, overrides=["roles.agg.env.RATIO=1.50", "roles.agg.kv_events.topic=mine"], unset=["roles.agg.sidecar"]
    )
    assert loaded.diagnostics == []
    assert loaded.recipe is not None
    agg = loaded.recipe.roles["agg"]
    assert (agg.env, agg.sidecar) == ({"RATIO": "1.50"}, None)
    assert agg.kv_events is not None
    assert agg.kv_events.topic == "mine"


def test_a_wrong_value_points_into_the_option(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(HAPPY.replace("name: ", "nme: "))
    found = load_recipe(path, overrides=["roles.agg.workers=two"]).diagnostics
    assert [item.code for item in found] == ["recipe/missing", "recipe/unknown-key", "recipe/type"]
    assert found[-1].span == Span("--set roles.agg.workers=two", 1, 19, 22)
