"""The command: exit codes, what is printed where, the file it leaves, and that it stands alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import srtctl.checks
from srtctl.checks import kv_events, registration, runner
from srtctl.checks.__main__ import main
from srtctl.checks.context import Limits
from srtctl.checks.model import Outcome

from .scenario import agg, running

LIMITS = Limits(registration=0, kv_events=0, settle=0, poll=0.01)


def test_a_pass_prints_a_line_a_check_on_stderr_and_leaves_one_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "checks.json"
    out.write_text("old")
    with running(agg()) as scenario:
        assert main(scenario.write(tmp_path), LIMITS) == 0
    text = out.read_text()
    content = json.loads(text)
    assert text == json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    assert list(content) == ["version", "verdict", "started", "seconds", "checks"]
    assert (content["version"], content["verdict"]) == (1, "pass")
    first = content["checks"][0]
    assert list(first) == ["name", "verdict", "on_failure", "seconds", "reason", "targets"]
    assert list(first["targets"][0]) == ["worker", "dp_rank", "verdict", "message", "evidence"]
    printed = capsys.readouterr()
    assert printed.out == ""
    assert [line.split()[:3] for line in printed.err.splitlines()] == [
        ["✓", "registration", "pass"],
        ["✓", "rank_routing", "pass"],
        ["✓", "kv_events", "pass"],
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checks.json", "nodes.tsv", "plan.json"]


def test_only_runs_what_is_named_in_the_fixed_order(tmp_path: Path) -> None:
    with running(agg()) as scenario:
        argv = [*scenario.write(tmp_path), "--only", "kv_events", "--only", "registration"]
        assert main(argv, LIMITS) == 0
    names = [item["name"] for item in json.loads((tmp_path / "checks.json").read_text())["checks"]]
    assert names == ["registration", "kv_events"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--plan", "/nowhere/plan.json"], "/nowhere/plan.json: cannot be read: No such file or directory"),
        (["--nodes", "/nowhere/nodes.tsv"], "/nowhere/nodes.tsv: cannot be read: No such file or directory"),
        (["--out", "/nowhere/checks.json"], "/nowhere/checks.json: its folder does not exist"),
        (["--only", "nothing"], "--only nothing: the plan has no such check, it has registration, rank_routing"),
    ],
)
def test_bad_input_exits_2_with_one_line(
    more: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*agg().write(tmp_path), *more], LIMITS) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert words in printed.err
    assert printed.err.count("\n") == 1
    assert not (tmp_path / "checks.json").exists()


def test_a_result_that_cannot_be_written_exits_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "checks.json" / "in the way").mkdir(parents=True)
    with running(agg()) as scenario:
        assert main(scenario.write(tmp_path), LIMITS) == 2
    assert "checks.json: cannot be written: Is a directory" in capsys.readouterr().err
    assert not list(tmp_path.glob(".checks.json*"))


def test_a_check_that_is_not_known_exits_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario = agg()
    scenario.plan["checks"].append({"name": "handoff", "on_failure": "fail", "targets": []})
    assert main(scenario.write(tmp_path), LIMITS) == 2
    assert "the plan has a check 'handoff', which these checks do not know" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "soon"])
def test_a_timeout_is_a_positive_number(value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([*agg().write(tmp_path), "--timeout", value], LIMITS)
    assert caught.value.code == 2
    assert "--timeout" in capsys.readouterr().err


def test_no_time_is_a_failure_that_says_so(tmp_path: Path) -> None:
    with running(agg()) as scenario:
        assert main([*scenario.write(tmp_path), "--timeout", "1e-9"], LIMITS) == 3
    reason = json.loads((tmp_path / "checks.json").read_text())["checks"][0]["reason"]
    assert "the time for the checks was over" in reason


def test_a_check_that_breaks_fails_and_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Outcome:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(
        runner,
        "CHECKS",
        (
            runner.Check("registration", registration.run, blocks_all=True),
            runner.Check("rank_routing", broken, blocks_all=False),
            runner.Check("kv_events", kv_events.run, blocks_all=False),
        ),
    )
    with running(agg()) as scenario:
        assert main(scenario.write(tmp_path), LIMITS) == 3
    checks = json.loads((tmp_path / "checks.json").read_text())["checks"]
    assert [item["verdict"] for item in checks] == ["pass", "fail", "pass"]
    assert checks[1]["reason"].startswith("the check itself broke")
    assert "ZeroDivisionError: oops" in checks[1]["reason"]


def test_it_stands_alone_as_a_bundle_has_it(tmp_path: Path) -> None:
    source = Path(srtctl.checks.__file__).parent
    target = tmp_path / "lib" / "srtctl" / "checks"
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    (target.parent / "__init__.py").touch()
    script = (
        "import sys; from srtctl.checks.__main__ import main; code = main(sys.argv[1:]);"
        "roots = {name.partition('.')[0] for name in sys.modules};"
        "print(sorted(roots - sys.stdlib_module_names - {'__main__', 'srtctl'})); sys.exit(code)"
    )
    with running(agg()) as scenario:
        done = subprocess.run(
            [sys.executable, "-S", "-B", "-c", script, *scenario.write(tmp_path)],
            env={**os.environ, "PYTHONPATH": str(tmp_path / "lib")},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
