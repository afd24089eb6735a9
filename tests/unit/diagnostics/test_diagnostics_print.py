"""Diagnostics as people and tools read them."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from srtctl.cli.diagnostics import WINDOW, format_text, print_diagnostics, summary
from srtctl.diagnostics import Diagnostic, DiagnosticError, Related, Span, did_you_mean, nearest


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def printed(*items: Diagnostic, **options: object) -> str:
    stream = io.StringIO()
    print_diagnostics(items, stream=stream, **options)  # type: ignore[arg-type]
    return stream.getvalue()


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "r.yaml"
    path.write_text(
        "name: x\nroles: {agg: {gpu: 8}}\n\tä漢字: wrong\n" + "k: [" + "x, " * 100 + "bad]\n", encoding="utf-8"
    )
    return str(path)


def test_source_line_caret_hint_and_count_in_file_order(file: str) -> None:
    text = printed(
        Diagnostic("slurm/gone", "no place"),
        Diagnostic("recipe/missing", "`model` is missing", "model", Span(file, 1, 1), severity="warning"),
        Diagnostic(
            "recipe/unknown-key",
            "`gpu` is no key",
            "",
            Span("--set roles.agg.gpu=4", 1, 11, 14),
            "did you mean `gpus`?",
        ),
        Diagnostic(
            "recipe/unknown-key", "`roles.agg.gpu` is no key", "", Span(file, 2, 15, 18), "did you mean `gpus`?"
        ),
    )
    assert text == (
        f"{file}:1:1: warning[recipe/missing]: `model` is missing\n"
        "    name: x\n"
        "    ^\n"
        f"{file}:2:15: error[recipe/unknown-key]: `roles.agg.gpu` is no key\n"
        "    roles: {agg: {gpu: 8}}\n"
        "                  ^^^\n"
        "  hint: did you mean `gpus`?\n"
        "--set roles.agg.gpu=4: error[recipe/unknown-key]: `gpu` is no key\n"
        "    roles.agg.gpu=4\n"
        "              ^^^\n"
        "  hint: did you mean `gpus`?\n"
        "error[slurm/gone]: no place\n"
        "3 errors, 1 warning\n"
    )


def test_the_other_place_of_two_that_contradict(file: str) -> None:
    others = (Related("port 1 is set here", "a.b", Span(file, 1, 7)), Related("and nowhere"))
    found = Diagnostic("ports/conflict", "port 1 twice", span=Span(file, 2, 15, 18), hint="move one", related=others)
    assert printed(found) == (
        f"{file}:2:15: error[ports/conflict]: port 1 twice\n"
        "    roles: {agg: {gpu: 8}}\n"
        "                  ^^^\n"
        f"  see: {file}:1:7: port 1 is set here\n"
        "    name: x\n"
        "          ^\n"
        "  see: and nowhere\n"
        "  hint: move one\n"
        "1 error\n"
    )
    place = {"file": file, "line": 1, "column": 7}
    assert json.loads(printed(found, fmt="json"))[0]["related"] == [
        {"message": "port 1 is set here", "path": "a.b", **place},
        {"message": "and nowhere"},
    ]
    assert printed(found, fmt="github").endswith(
        f"::port 1 twice%0Asee: {file}:1:7: port 1 is set here%0Asee: and nowhere%0Ahint: move one\n"
    )


def test_carets_stand_under_wide_characters_and_tabs(file: str) -> None:
    lines = printed(Diagnostic("c", "m", span=Span(file, 3, 3, 5))).splitlines()
    assert lines[1:3] == ["     ä漢字: wrong", "      ^^^^"]


def test_a_long_line_is_shown_around_the_place(file: str) -> None:
    _, source, mark, _ = printed(Diagnostic("c", "m", span=Span(file, 4, 305, 308))).splitlines()
    assert source[mark.index("^") : mark.rindex("^") + 1] == "bad"
    assert source.startswith("    …")
    assert len(source) <= WINDOW + 6
    _, source, mark, _ = printed(Diagnostic("c", "m", span=Span(file, 4, 1, 2))).splitlines()
    assert mark == "    ^"
    assert source.endswith("…")


@pytest.mark.parametrize("span", [Span("/no/such/file", 3, 1), Span("{file}", 99, 1), Span("{file}", 0, 0)])
def test_without_the_source_there_is_no_caret(file: str, span: Span) -> None:
    span = Span(span.file.format(file=file), span.line, span.column)
    assert printed(Diagnostic("c", "m", span=span)) == f"{span}: error[c]: m\n1 error\n"


def test_a_place_past_the_end_of_its_line(file: str) -> None:
    assert printed(Diagnostic("c", "m", span=Span(file, 1, 50, 60))).splitlines()[1:3] == [
        "    name: x",
        "           ^",
    ]


def test_control_characters_do_not_reach_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("a: \x1b[31m\n")
    text = printed(Diagnostic("c", "key \x1b]0;x\x07\nnew", span=Span(str(path), 1, 4), hint="\x9b1m"))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\x9b" not in text
    assert len(text.splitlines()) == 5


def test_nothing_is_printed_for_nothing() -> None:
    assert printed() == ""
    assert printed(fmt="github") == ""
    assert json.loads(printed(fmt="json")) == []


@pytest.mark.parametrize(
    ("errors", "warnings", "text"), [(1, 0, "1 error"), (2, 1, "2 errors, 1 warning"), (0, 2, "2 warnings"), (0, 0, "")]
)
def test_summary(errors: int, warnings: int, text: str) -> None:
    found = [Diagnostic("c", "m")] * errors + [Diagnostic("c", "m", severity="warning")] * warnings
    assert summary(found) == text


@pytest.mark.parametrize(
    ("terminal", "color", "env", "painted"),
    [
        (True, None, {}, True),
        (False, None, {}, False),
        (True, None, {"NO_COLOR": "1"}, False),
        (True, None, {"NO_COLOR": ""}, True),
        (True, None, {"TERM": "dumb"}, False),
        (False, True, {"NO_COLOR": "1"}, True),
        (True, False, {}, False),
    ],
)
def test_color(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, color: bool | None, env: dict[str, str], painted: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    stream = Terminal() if terminal else io.StringIO()
    print_diagnostics([Diagnostic("c", "m", hint="h")], color=color, stream=stream)
    assert ("\x1b[" in stream.getvalue()) == painted


def test_color_only_adds_escapes(file: str) -> None:
    import re

    found = [Diagnostic("c", "m", span=Span(file, 2, 3, 5), hint="h")]
    assert re.sub(r"\x1b\[[0-9;]*m", "", format_text(found, color=True)) == format_text(found, color=False)


def test_default_stream_is_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    print_diagnostics([Diagnostic("c", "m")])
    assert capsys.readouterr() == ("", "error[c]: m\n1 error\n")


def test_json(file: str) -> None:
    found = json.loads(
        printed(Diagnostic("c", "m ü", "a.b", Span(file, 1, 2, 3), "h", "warning"), Diagnostic("d", "n"), fmt="json")
    )
    assert found == [
        {
            "code": "c",
            "severity": "warning",
            "message": "m ü",
            "path": "a.b",
            "file": file,
            "line": 1,
            "column": 2,
            "end_column": 3,
            "hint": "h",
        },
        {"code": "d", "severity": "error", "message": "n"},
    ]


def test_github(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = printed(
        Diagnostic("c/d", "50% of\nit", span=Span(str(tmp_path / "a,b:c.yaml"), 1, 2, 5), hint="h"),
        Diagnostic("w", "m", span=Span("rel.yaml", 3, 1), severity="warning"),
        Diagnostic("o", "m", span=Span("--set a=b", 1, 1)),
        fmt="github",
    )
    assert text.splitlines() == [
        "::error file=a%2Cb%3Ac.yaml,line=1,col=2,title=c/d,endColumn=5::50%25 of%0Ait%0Ahint: h",
        "::warning file=rel.yaml,line=3,col=1,title=w::m",
        "::error title=o::m",
    ]


@pytest.mark.parametrize(
    ("word", "known", "near"),
    [
        ("wokers", ["workers", "nodes"], "workers"),
        ("kv-event", ["kv_events"], "kv_events"),
        ("tp_size", ["tp-size"], "tp-size"),
        ("zzz", ["workers"], None),
        ("x", [], None),
    ],
)
def test_nearest(word: str, known: list[str], near: str | None) -> None:
    assert nearest(word, known) == near


def test_did_you_mean() -> None:
    assert did_you_mean("wokers", ["workers"]) == "did you mean `workers`?"
    assert did_you_mean("zzz", ["b", "a", "a"]) == "known here: a, b"
    assert did_you_mean("zzz", []) == ""
    assert did_you_mean("zzz", [str(n) for n in range(13)]) == ""


def test_the_exception_says_its_errors() -> None:
    error = DiagnosticError(
        [Diagnostic("a", "one"), Diagnostic("b", "two", severity="warning"), Diagnostic("c", "three")]
    )
    assert str(error) == "one; three"
    assert len(error.diagnostics) == 3
