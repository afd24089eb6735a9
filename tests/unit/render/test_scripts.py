"""The text of job.sbatch and of the workers' scripts, where snapshots of the examples do not reach."""

from __future__ import annotations

from pathlib import Path

import pytest

from srtctl.diagnostics import DiagnosticError
from srtctl.render import bundle
from srtctl.render.bundle import bundle_files, write_bundle
from srtctl.render.scripts import directives, job_script
from tests.support import EXAMPLES, plan_of

BY_NAME = {path.stem: path for path in EXAMPLES}
ATTENTION = BY_NAME["sglang-attention-dp-2n"]


def test_directives_of_a_full_profile() -> None:
    plan = plan_of(
        ATTENTION,
        default_account="a",
        default_partition="p",
        default_time_limit="1:00:00",
        use_gpus_per_node_directive=False,
        use_exclusive_sbatch_directive=False,
        default_sbatch_directives={"mem": "64G", "comment": "two words", "requeue": None},
    )
    assert directives(plan, "/runs/x") == [
        "--job-name=qwen3-attention-dp",
        "--account=a",
        "--partition=p",
        "--nodes=2",
        "--ntasks-per-node=1",
        "--mem=64G",
        "--time=1:00:00",
        "--no-requeue",
        "--signal=B:USR1@90",
        "--output=/runs/x/logs/job.%j.log",
        '--comment="two words"',
        "--requeue",
    ]


def test_every_directive_comes_before_the_first_command() -> None:
    """Slurm ignores what follows silently."""
    lines = job_script(plan_of(ATTENTION), "/runs/x").splitlines()
    first = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
    assert [line for line in lines[first:] if line.startswith("#SBATCH")] == []
    assert lines[1].startswith("#SBATCH")


GATES = [
    # overrides, the lines that say when it is ready
    ((), ["expect decode workers=1 ranks=2 kv_sources=all", "gate 1800 python3 0:8000 "]),
    (
        ("roles.agg.kv_events=false", "frontend.args={router-mode: kv}"),
        ["expect decode workers=1 ranks=2", "gate 1800 python3 0:8000 "],
    ),
    (("roles.agg.kv_events=false", "frontend.args={router-mode: random}"), ["gate 1800 python3 0:8000 "]),
    (("roles.agg.sidecar=false", "frontend={type: sglang}"), ["gate 1800 - 0:6100 "]),
    (("roles.agg.sidecar=false", "frontend={type: none}"), ["gate 1800 -  "]),
    (
        ("frontend.enable_multiple_frontends=true",),
        ["expect decode workers=1 ranks=2 kv_sources=all", "gate 1800 python3 0-1:8080 "],
    ),
]


@pytest.mark.parametrize(("overrides", "expected"), GATES)
def test_what_the_job_waits_for(overrides: tuple[str, ...], expected: list[str]) -> None:
    text = job_script(plan_of(ATTENTION, overrides=overrides), "/runs/x")
    found = [line for line in text.splitlines() if line.startswith(("expect", "gate"))]
    assert len(found) == len(expected)
    assert all(line.startswith(start) for line, start in zip(found, expected, strict=True))


def test_nginx_starts_after_the_frontends_that_it_stands_before() -> None:
    text = job_script(plan_of(ATTENTION, overrides=("frontend.enable_multiple_frontends=true",)), "/runs/x")
    started = [line.split()[:2] for line in text.splitlines() if line.startswith(("service ", "frontend ", "worker "))]
    assert started == [
        ["service", "etcd"],
        ["frontend", "frontend-0"],
        ["frontend", "frontend-1"],
        ["service", "nginx"],
        ["worker", "agg-0"],
    ]


def test_prefill_and_decode_are_expected_apart() -> None:
    text = job_script(plan_of(BY_NAME["sglang-ordinary-dp-4n"]), "/runs/x")
    assert [line.split("  ")[0] for line in text.splitlines() if line.startswith("expect")] == [
        "expect prefill workers=2 ranks=4 kv_sources=all",
        "expect decode workers=2 ranks=4",
    ]


def test_a_folder_with_blanks_quotes_and_percent_signs_stays_one_word(tmp_path: Path) -> None:
    folder = tmp_path / "it's a run of 100%j"
    write_bundle(plan_of(ATTENTION), folder, "schema: 2\n")
    text = (folder / "job.sbatch").read_text()
    assert f'--output="{tmp_path}/it\'s a run of 100%%j/logs/job.%j.log"' in text
    assert "RUN_DIR='" in text
    assert (folder / "job.sbatch").stat().st_mode & 0o111
    assert all((folder / name).is_dir() for name in ("logs", "events", "state"))


def test_a_script_that_slurm_would_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "MAX_SCRIPT_BYTES", 100)
    with pytest.raises(DiagnosticError, match="4 MiB"):
        bundle_files(plan_of(ATTENTION), "/runs/x", "")


def test_values_from_recipes_cannot_become_commands() -> None:
    plan = plan_of(ATTENTION, overrides=("roles.agg.env={X: '$(reboot) `id` \"q\"'}",))
    script = bundle_files(plan, "/r", "")["workers/agg-0.sh"]
    assert r'''"X=\$(reboot) \`id\` \"q\""''' in script
