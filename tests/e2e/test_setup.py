"""A recipe's `setup_script` on a real Slurm, run on the nodes themselves: before each process, and named when it fails."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Sandbox

pytestmark = pytest.mark.e2e

RECIPE = "examples/agg/sglang-attention-dp-2n.yaml"


@pytest.fixture
def configs(sandbox: Sandbox) -> Iterator[Path]:
    """`configs/` beside the cluster profile, where scripts are looked for by name."""
    folder = sandbox.directory / "configs"
    folder.mkdir()
    yield folder
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def test_it_runs_on_each_node_before_the_engine(sandbox: Sandbox, configs: Path) -> None:
    (configs / "prepare.sh").write_text('echo preparing\necho "$STEP" >>"$RUN_DIR/prepared.$SLURMD_NODENAME"\n')
    status = sandbox.apply(RECIPE, "--set", "setup_script=prepare.sh")
    run = sandbox.run_dir(status["run"])
    try:
        for index in range(2):
            name = f"sandbox-{index}"
            assert (run / f"prepared.{name}").read_text() == "agg-0\n"
            assert (run / f"logs/agg-0.{index}.setup.log").read_text() == "preparing\n"
            events = [json.loads(line) for line in (run / f"events/node-{index}.jsonl").read_text().splitlines()]
            parts = [e["part"] for e in events if e["event"] == "started" and e["process"] == f"agg-0.{index}"]
            assert parts == ["setup", "engine", "sidecar"]
        assert sandbox.cli("logs", status["run"], "agg-0.1.setup").stdout == "preparing\n"
    finally:
        sandbox.cli("cancel", status["run"], "--wait")


def test_one_that_fails_ends_the_job_and_is_the_cause(sandbox: Sandbox, configs: Path) -> None:
    (configs / "broken.sh").write_text(
        '[[ $SLURMD_NODENAME != sandbox-1 ]] || { echo "no such package" >&2; exit 3; }\n'
    )
    status = sandbox.apply(RECIPE, "--set", "setup_script=broken.sh", code=1)
    end = json.loads((sandbox.run_dir(status["run"]) / "state/end.json").read_text())
    assert (end["state"], end["cause"]) == ("failed", "agg-0.1 setup on sandbox-1 exited with 3: no such package")
    assert not (sandbox.run_dir(status["run"]) / "logs/agg-0.1.engine.log").exists()
