"""`reach`: a port that the frontend's node cannot reach ends the job with its node, its port and its owner."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from srtctl.render.bundle import STATIC

pytestmark = pytest.mark.process

RENDER = Path(__file__).parents[3] / "src/srtctl/render"


def reach(folder: Path, *lines: str) -> tuple[int, str]:
    """What node 1 says to the lines of `reach`."""
    for name in STATIC:
        shutil.copy(RENDER / name, folder)
    for name in ("logs", "state", "events"):
        (folder / name).mkdir()
    (folder / "state/nodes.tsv").write_text("0\tn0\t127.0.0.1\n1\tn1\t127.0.0.2\n")
    env = {"PATH": os.environ["PATH"], "RUN_DIR": str(folder), "TMPDIR": str(folder), "SLURMD_NODENAME": "n1"}
    env |= {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "3", "STEP": "reach"}
    script = 'source "$RUN_DIR/node.sh"; enter_step; reach_node "$@"'
    done = subprocess.run(
        ["bash", "-c", script, "reach", *lines], env=env, capture_output=True, text=True, timeout=30, check=False
    )
    return done.returncode, done.stdout


def test_what_answers_is_reached_and_other_nodes_lines_are_theirs(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert reach(tmp_path, f"1 0 {port} agg-0.0", "0 1 1 agg-1.0") == (0, "")


def test_what_does_not_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code, said = reach(tmp_path, f"1 0 {port} agg-0.0", f"1 1 {port} agg-1.0")
    assert code == 1
    assert said.startswith(f"port {port} on n1 (gRPC of agg-1.0) cannot be reached from n1, where the frontend runs: ")
    assert "does it listen on 127.0.0.2" in said
