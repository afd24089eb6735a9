"""`dynamo_python` of the profile: what the nodes' Dynamo lacks is said before anything is submitted."""

from __future__ import annotations

import sys

import pytest
from fake_slurm import Bench

#: Stands for the Python of the stack: runs the probe itself, and has a `--help` for each Dynamo module.
PYTHON = f"""#!/bin/sh
echo "$*" >> {{log}}
case $2 in
dynamo.*) echo "{{help}}" ;;
*) [ -z "$PYTHONPATH" ] || echo "PYTHONPATH=$PYTHONPATH" >> {{log}}; exec {sys.executable} "$@" ;;
esac
"""
HELP = "--http-host --http-port --router-mode --grpc-endpoint"


def with_python(bench: Bench, said: str, profile: str = "") -> None:
    python, log = bench.fake / "stack-python", bench.fake / "asked.log"
    python.write_text(PYTHON.format(log=log, help=said))
    python.chmod(0o755)
    with (bench.home / "srtslurm.yaml").open("a") as file:
        file.write(f"dynamo_python: {python}\nenv: {{PYTHONPATH: /image}}\n{profile}")


def test_what_is_missing_is_refused_and_leaves_nothing(bench: Bench) -> None:
    with_python(bench, HELP.replace("--grpc-endpoint", ""))
    result = bench("apply", "demo.yaml")
    assert result.exit_code == 2
    assert (
        "lacks what the plan uses: its dynamo.sglang.sidecar has no --grpc-endpoint, which the sidecar of agg-0.0 uses"
        in (result.stderr)
    )
    assert "nothing was submitted; asked was `dynamo_python`" in result.stderr
    assert list(bench.runs.iterdir()) == []
    assert not (bench.fake / "sbatch.argv").exists()


def test_what_is_there_is_submitted_and_was_asked_in_the_environment_of_the_run(bench: Bench) -> None:
    with_python(bench, HELP)
    assert bench("apply", "demo.yaml").exit_code == 0
    asked = (bench.fake / "asked.log").read_text()
    assert "PYTHONPATH=/image" in asked
    assert "-m dynamo.sglang.sidecar --help" in asked


@pytest.mark.parametrize("said", ["", None])
def test_a_python_that_cannot_be_asked_stops_nobody(bench: Bench, said: str | None) -> None:
    with_python(bench, "")
    python = bench.fake / "stack-python"
    if said is None:
        python.unlink()
    else:
        python.write_text("#!/bin/sh\nexit 1\n")
    assert bench("apply", "demo.yaml").exit_code == 0
