"""What a command loads: nothing that only launching, checking or printing needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import REPOSITORY

HEAVY = {"paramiko", "grpc", "zmq", "msgpack", "jinja2", "rich", "asyncio"}
EXAMPLE = str(REPOSITORY / "examples" / "agg" / "sglang-attention-dp-2n.yaml")

COMMANDS = [
    (["--version"], HEAVY | {"typer", "yaml", "pydantic", "srtctl.cli.app"}),
    (["--help"], HEAVY | {"yaml", "pydantic"}),
    (["plan", EXAMPLE, "--cluster", "none"], HEAVY),
    (["plan", EXAMPLE, "--cluster", "none", "-o", "json"], HEAVY),
    (["status", "--cluster", "none"], HEAVY),
]


@pytest.mark.parametrize(("argv", "unwanted"), COMMANDS, ids=[" ".join(c[0][:1] + c[0][4:]) for c in COMMANDS])
def test_a_command_loads_only_what_it_needs(argv: list[str], unwanted: set[str], tmp_path: Path) -> None:
    code = (
        "import sys, runpy\n"
        f"sys.argv = ['srtctl', *{argv!r}]\n"
        "try: runpy.run_module('srtctl', run_name='__main__')\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "print('loaded:', *sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    loaded = done.stderr.rpartition("loaded:")[2].split()
    assert "srtctl" in loaded
    assert unwanted.isdisjoint(loaded), unwanted & set(loaded)
