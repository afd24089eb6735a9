"""Whatever YAML is dumped reads back equal, and every key and value of it has its place."""

from __future__ import annotations

import string
from typing import Any

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from srtctl.reading.document import KeyPath, parse_yaml
from srtctl.reading.scalars import ScalarError, plain_value


def _is_text_here(text: str) -> bool:
    """Whether YAML 1.2 reads the plain scalar as the text it is in YAML 1.1: PyYAML's dumper quotes by 1.1 rules."""
    try:
        return isinstance(plain_value(text), str)
    except ScalarError:
        return False


texts = st.one_of(
    st.text(max_size=12).filter(lambda text: text.isprintable()),
    st.text(alphabet=string.ascii_letters + "-_.:/ <>#&*!|{}[]'\"", max_size=8),
    st.sampled_from(
        ["yes", "no", "on", "off", "null", "~", "true", "00:30:00", "1_000", "2026-01-01", "=", "<<", "010", "0x1F"]
    ),
)
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), texts)
trees = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=20,
)


def _paths(data: Any, path: KeyPath = ()) -> list[tuple[KeyPath, Any]]:
    found = [(path, data)]
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        found += _paths(value, (*path, key))
    return found


def _all_text_here(data: Any) -> bool:
    leaves = [value for _, value in _paths(data)] + [part for path, _ in _paths(data) for part in path]
    return all(_is_text_here(leaf) or _quoted_by_pyyaml(leaf) for leaf in leaves if isinstance(leaf, str))


def _quoted_by_pyyaml(text: str) -> bool:
    return yaml.safe_dump(text).startswith(("'", '"', "|", ">", "? "))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(trees.filter(_all_text_here), st.booleans())
def test_what_is_dumped_reads_back(data: Any, flow: bool) -> None:
    text = yaml.safe_dump(data, default_flow_style=flow, allow_unicode=True)
    document = parse_yaml(text, "f")
    assert document.diagnostics == ()
    assert document.data == data
    lines = text.split("\n")
    for path, value in _paths(data):
        span, key = document.span(path), document.span(path, key=True)
        assert span is not None
        assert key is not None
        assert path in document.places
        if span.end_column and not isinstance(value, dict | list):
            assert parse_yaml(lines[span.line - 1][span.column - 1 : span.end_column - 1], "f").data == value
        if key.end_column and path and isinstance(path[-1], str):
            assert parse_yaml(lines[key.line - 1][key.column - 1 : key.end_column - 1], "f").data == path[-1]
