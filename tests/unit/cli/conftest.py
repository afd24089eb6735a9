from __future__ import annotations

from pathlib import Path

import pytest
from fake_slurm import Bench, make_bench, serve


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """The fake Slurm first on PATH, in its home."""
    bench = make_bench(tmp_path)
    monkeypatch.chdir(bench.home)
    monkeypatch.setenv("PATH", f"{bench.fake}:/usr/bin:/bin")
    for name in ("SRTCTL_CLUSTER", "SRTCTL_SANDBOX", "SLURM_CONF"):
        monkeypatch.delenv(name, raising=False)
    return bench


@pytest.fixture
def run(bench: Bench) -> Path:
    """A submitted run whose job runs and has said nothing."""
    return bench.submit()


@pytest.fixture
def serving(run: Path) -> Path:
    """A run that serves."""
    serve(run)
    return run
