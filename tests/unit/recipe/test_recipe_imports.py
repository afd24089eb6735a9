"""Loading a recipe and a profile pulls in nothing that only printing, rendering or checking needs."""

from __future__ import annotations

import subprocess
import sys

HEAVY = {
    "rich",
    "typer",
    "click",
    "jinja2",
    "grpc",
    "zmq",
    "msgpack",
    "subprocess",
    "asyncio",
    "srtctl.slurm",
    "srtctl.plan",
}


def test_start_up_stays_light() -> None:
    code = "import sys, srtctl.recipe.load, srtctl.cluster.load, srtctl.cli.diagnostics; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert HEAVY.isdisjoint(done.stdout.split())
