"""What can be wrong with a YAML file: each problem has its code, its place and a hint. `«` marks the expected place."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from srtctl.reading import document, nodes
from srtctl.reading.build import MAX_DEPTH, MAX_VALUES
from srtctl.reading.document import YamlDocument, parse_yaml, read_yaml

CASES = [
    ("yaml/duplicate-key", "a: 1\nb: {c: 1, «c: 2}\n", "first on line 2, again on line 2", "remove one"),
    ("yaml/duplicate-key", "a: 1\n\n'b': 2\n«a: 3\n", "first on line 1, again on line 4", "remove one"),
    ("yaml/leading-zero", "port: «0700", "octal", 'quote it if it is text ("0700")'),
    ("yaml/leading-zero", "a: &x {p: «010}\nb: *x\nc: {<<: *x}", "octal", "quote"),
    ("yaml/key-type", "«8000: x", "`8000` is not text", 'quote it: "8000"'),
    ("yaml/key-type", "a: {«true: x}", "`true` is not text", "quote it"),
    ("yaml/key-type", "a: {«~: x}", "`~` is not text", "quote it"),
    ("yaml/key-type", "a: {«010: x}", "`010` is not text", "quote it"),
    ("yaml/key-type", "? «[a, b]\n: x", "not a list or a mapping", "key: value"),
    ("yaml/merge", "a: {<<: «5}", "mappings only", "*name"),
    ("yaml/merge", "b: &b {q: 1}\na: {<<: [*b, «[1]]}", "mappings only", "*name"),
    ("yaml/recursive", "a: «&x [1, *x]", "contains itself", "remove the alias"),
    ("yaml/recursive", "a: «&x {b: {c: *x}}", "contains itself", "remove the alias"),
    ("yaml/recursive", "a: «&x {<<: *x, b: 1}", "merges itself", "remove the `<<`"),
    ("yaml/tag", "a: «!!python/object:os.system x", "not supported", "remove the tag"),
    ("yaml/tag", "a: «!mine {b: 1}", "not supported", "remove the tag"),
    ("yaml/tag", "a: «!!set {b: null}", "not supported", "remove the tag"),
    ("yaml/tag", "a: «!!int eight", "is no YAML int", "remove"),
    ("yaml/alias", "a: «*nobody", "undefined alias", "&name"),
    ("yaml/alias", "a: &x 1\nb: «&x 2", "twice", "another name"),
    ("yaml/multiple-documents", "a: 1\n«---\nb: 2", "second document", "---"),
    ("yaml/syntax", "a:\n«\tb: 1", "tab", "spaces"),
    ("yaml/syntax", "a: «@b", "cannot start with `@`", "quote"),
    ("yaml/syntax", "a: b«: c", "`:` is not allowed", "indentation"),
    ("yaml/syntax", "a: 1\n b«: 2", "`:` is not allowed", "indentation"),
    ("yaml/syntax", "a: «'b\nc: d\n", "never closed", "close the quote"),
    ("yaml/syntax", "a: «[1, 2\n", "list, opened on line 1", "`]`"),
    ("yaml/syntax", "a: {b: 1\nc«: 2\n", "mapping, opened on line 1", "`}`"),
    ("yaml/syntax", "- 1\n«b: 2\n", "list item", "indentation"),
    ("yaml/syntax", "a: «]", "value was expected", "quote"),
    ("yaml/syntax", "a: 1\n«}", "", ""),
    ("yaml/syntax", 'a: "«\\q"', "escape", "single quotes"),
    ("yaml/syntax", "a: b\nc: «\x07", "U+0007", "remove it"),
    ("yaml/empty", "«", "holds nothing", "fill it"),
    ("yaml/empty", "«# only a comment\n", "holds nothing", "fill it"),
]


def with_pure_parser(text: str, file: str) -> YamlDocument:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(document, "compose", lambda source: nodes.compose(source, nodes.PureComposer))
        return parse_yaml(text, file)


PARSERS: list[Callable[[str, str], YamlDocument]] = [parse_yaml, with_pure_parser]


@pytest.mark.parametrize(("code", "marked", "message", "hint"), CASES, ids=[f"{c}:{t[:24]!r}" for c, t, _, _ in CASES])
def test_problem(code: str, marked: str, message: str, hint: str) -> None:
    before, _, after = marked.partition("«")
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    [found] = parse_yaml(before + after, "f").diagnostics
    assert (found.code, found.severity) == (code, "error")
    assert found.span is not None
    assert str(found.span) == f"f:{line}:{column}"
    assert message in found.message
    assert hint in found.hint


@pytest.mark.parametrize("marked", [text for code, text, _, _ in CASES if code not in ("yaml/syntax",)])
def test_the_pure_parser_finds_the_same(marked: str) -> None:
    text = marked.replace("«", "")
    fast, pure = (parse(text, "f") for parse in PARSERS)
    assert [(d.code, d.span) for d in pure.diagnostics] == [(d.code, d.span) for d in fast.diagnostics]
    assert pure.data == fast.data


@pytest.mark.parametrize("text", [text.replace("«", "") for code, text, _, _ in CASES if code == "yaml/syntax"])
def test_the_pure_parser_explains_syntax_errors_too(text: str) -> None:
    [found] = with_pure_parser(text, "f").diagnostics
    assert found.code == "yaml/syntax"
    assert found.span is not None


def test_all_problems_at_once_and_the_rest_is_read() -> None:
    found = parse_yaml("a: 010\na: 2\nb: !x 1\n7: c\nd: fine\n", "f")
    assert sorted(item.code for item in found.diagnostics) == [
        "yaml/duplicate-key",
        "yaml/key-type",
        "yaml/leading-zero",
        "yaml/tag",
    ]
    assert found.data["d"] == "fine"


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 5_000])
def test_depth_is_limited(parse: Callable[[str, str], YamlDocument], depth: int) -> None:
    found = parse("[" * depth + "]" * depth, "f").diagnostics
    assert {item.code for item in found} == {"yaml/too-deep"}


def test_aliases_cannot_multiply_without_end() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    result = parse_yaml("\n".join(lines), "f")
    assert [item.code for item in result.diagnostics] == ["yaml/too-large"]
    assert len(result.places) <= MAX_VALUES


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    [found] = read_yaml(tmp_path / "no.yaml").diagnostics
    assert found.code == "yaml/not-found"
    assert "no.yaml" in found.message


def test_a_folder(tmp_path: Path) -> None:
    [found] = read_yaml(tmp_path).diagnostics
    assert found.code == "yaml/not-readable"
    assert "folder" in found.message


def test_a_file_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    [found] = read_yaml(tmp_path / "a" / "b").diagnostics
    assert found.code == "yaml/not-readable"


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_no_permission(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("a: 1")
    path.chmod(0)
    [found] = read_yaml(path).diagnostics
    assert found.code == "yaml/not-readable"
    assert "ermission" in found.message


def test_not_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_bytes("a: 1\nname: caf\xe9".encode("latin-1"))
    [found] = read_yaml(path).diagnostics
    assert (found.code, str(found.span)) == ("yaml/encoding", f"{path}:2:10")
    assert "0xe9" in found.message
