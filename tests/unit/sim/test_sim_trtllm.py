"""The simulated TensorRT-LLM: its settings, its ranks as Slurm starts them, its cache transceiver."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from engine_process import free_ports

from srtctl.sim.errors import GroupError
from srtctl.sim.model import write_model
from srtctl.sim.openengine.engine import FailedError, Session
from srtctl.sim.trtllm.config import ConfigError, read_config
from srtctl.sim.trtllm.transceiver import Transceiver, fetch
from srtctl.sim.trtllm.world import read_world
from tests.openengine_client import Client, token_count
from tests.support import REPOSITORY

SIM = REPOSITORY / "src/srtctl/sim"
LAUNCHER = SIM / "bin/trtllm-llmapi-launch"
SECONDS = 20.0
GRPC = ("--grpc", "--grpc-protocol", "openengine")


def yaml_file(folder: Path, **content: Any) -> str:
    path = folder / "engine.yaml"
    path.write_text(json.dumps(content))
    return str(path)


def test_the_file_wins_over_flags(tmp_path: Path) -> None:
    file = yaml_file(tmp_path, tensor_parallel_size=4, max_seq_len=64, kv_cache_config={"tokens_per_block": 8})
    config = read_config(["/m", *GRPC, "--tp_size", "2", "--pp_size", "2", "--extra_llm_api_options", file])
    assert (config.tp, config.pp, config.world, config.max_seq_len, config.block_size) == (4, 2, 8, 64, 8)
    assert (config.role, config.openengine, config.transceiver) == ("agg", True, None)


def test_grpc_is_smg_unless_told() -> None:
    assert not read_config(["/m", "--grpc"]).openengine


BAD: list[tuple[list[str], dict[str, Any], str]] = [
    ([], {}, "without --grpc"),
    ([*GRPC, "--server_role", "MM_ENCODER"], {}, "server role 'MM_ENCODER'"),
    ([*GRPC, "--server_role", "CONTEXT"], {}, "needs cache_transceiver_config"),
    ([*GRPC], {"tensor_parallel_size": "two"}, "tensor_parallel_size must be"),
    ([*GRPC], {"cache_transceiver_config": {"max_tokens_in_buffer": 1}}, "with a backend"),
]


@pytest.mark.parametrize(("argv", "content", "words"), BAD, ids=[row[2] for row in BAD])
def test_what_the_engine_refuses(tmp_path: Path, argv: list[str], content: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_config(["/m", *argv, "--extra_llm_api_options", yaml_file(tmp_path, **content)])


@pytest.mark.parametrize("argv", [["/m", "--tensor-parallel-size", "2"], [], ["/m", "--grpc-protocol", "other"]])
def test_bad_usage_exits_with_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        read_config(argv)
    assert end.value.code == 2
    assert "serve: error" in capsys.readouterr().err


def test_a_world_needs_a_meeting_point() -> None:
    assert read_world({}).size == 1
    with pytest.raises(GroupError, match="4 MPI ranks, but MASTER_ADDR:MASTER_PORT says nothing"):
        read_world({"SLURM_PROCID": "1", "SLURM_NTASKS": "4"})


class Ranks:
    """The tasks of an MPI step, as the launcher starts them."""

    def __init__(self, folder: Path, size: int, **content: Any) -> None:
        self.folder, self.port = folder, free_ports()
        write_model(folder / "model")
        file = yaml_file(folder, tensor_parallel_size=size, **content)
        engine = [sys.executable, "-m", "tensorrt_llm.commands.serve", str(folder / "model"), *GRPC]
        engine += ["--host", "127.0.0.1", "--port", str(self.port), "--extra_llm_api_options", file]
        master = free_ports()
        self.tasks = []
        for rank in range(size):
            env = os.environ | {"SLURM_PROCID": str(rank), "SLURM_NTASKS": str(size), "MASTER_ADDR": "127.0.0.1"}
            env |= {"MASTER_PORT": str(master), "PYTHONPATH": f"{REPOSITORY / 'src'}:{SIM / 'modules'}"}
            env["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
            with (folder / f"{rank}.log").open("wb") as log:
                self.tasks.append(subprocess.Popen(["sh", LAUNCHER, *engine], env=env, stdout=log, stderr=log))

    def log(self, rank: int) -> str:
        return (self.folder / f"{rank}.log").read_text()

    def codes(self) -> list[int]:
        return [task.wait(SECONDS) for task in self.tasks]


@contextmanager
def started(folder: Path, size: int, **content: Any) -> Iterator[Ranks]:
    ranks = Ranks(folder, size, **content)
    try:
        yield ranks
    finally:
        for task in ranks.tasks:
            task.kill()
            task.wait()


def test_rank_0_serves_once_all_ranks_are_there_and_all_of_them_compute(tmp_path: Path) -> None:
    with started(tmp_path, 3) as ranks, Client(f"127.0.0.1:{ranks.port}") as client:
        assert token_count(client.generate("r1", 20, 4)) == 4
        assert all("Forward: rid=r1" in ranks.log(rank) for rank in (1, 2))
        stream = client.generate("r2", 20, 1000)
        next(stream)
        for task in ranks.tasks:
            task.send_signal(signal.SIGTERM)
        assert token_count(stream) == 999
        assert ranks.codes() == [0, 0, 0]


@pytest.mark.parametrize("dying", [0, 1])
def test_any_ranks_end_ends_all(tmp_path: Path, dying: int) -> None:
    with started(tmp_path, 2) as ranks, Client(f"127.0.0.1:{ranks.port}") as client:
        client.call("Health")
        ranks.tasks[dying].kill()
        other = 1 - dying
        assert ranks.tasks[other].wait(SECONDS) == 1
        last = ranks.log(other).splitlines()[-1]
        assert last.startswith(f"RuntimeError: MPI_ABORT was invoked on rank {other}")


def test_a_world_of_another_size_is_refused(tmp_path: Path) -> None:
    with started(tmp_path, 1, pipeline_parallel_size=2) as ranks:
        assert ranks.codes() == [1]
        assert "world size 1 is not TP1 x PP2 x CP1" in ranks.log(0)


@pytest.fixture
def transceiver() -> Iterator[Transceiver]:
    found = Transceiver("127.0.0.1", "127.0.0.1", "UCX", 60)
    yield found
    found.close()


def test_a_cache_is_fetched_once(transceiver: Transceiver) -> None:
    session = transceiver.offer(40, 7)
    assert transceiver.waiting() == 1
    assert fetch(session, 40, "UCX") == (7,)
    assert transceiver.waiting() == 0
    with pytest.raises(FailedError, match="no KV cache is offered") as gone:
        fetch(session, 40, "UCX")
    assert gone.value.code == "KV_SESSION_NOT_FOUND"


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("KV_TRANSFER_FAILED", {"backend": "NIXL"}, "transceiver is UCX, yours is NIXL"),
    ("KV_TRANSFER_FAILED", {"prompt_tokens": 41}, "40 tokens, the request has 41"),
    ("KV_SESSION_NOT_FOUND", {"opaque_state": "AAAA"}, "no KV cache is offered"),
    ("INVALID_ARGUMENT", {"ctx_info_endpoint": ""}, "none of TensorRT-LLM's"),
]


@pytest.mark.parametrize(("code", "change", "words"), WRONG, ids=[row[2] for row in WRONG])
def test_a_wrong_session_fails(transceiver: Transceiver, code: str, change: dict[str, Any], words: str) -> None:
    session = transceiver.offer(40, 7)
    backend, tokens = change.pop("backend", "UCX"), change.pop("prompt_tokens", 40)
    with pytest.raises(FailedError, match=words) as found:
        fetch(Session(session.session_id, 0, {**session.attributes, **change}), tokens, backend)
    assert found.value.code == code


def test_an_engine_that_is_gone_is_named(transceiver: Transceiver) -> None:
    session = transceiver.offer(40, 7)
    transceiver.close()
    with pytest.raises(FailedError, match=f"cannot fetch the KV cache from 127.0.0.1:{transceiver.port}"):
        fetch(session, 40, "UCX")


def test_what_nobody_fetches_is_dropped() -> None:
    short = Transceiver("127.0.0.1", "127.0.0.1", "UCX", 0.05)
    try:
        session = short.offer(40, 7)
        end = time.monotonic() + SECONDS
        while short.waiting():
            assert time.monotonic() < end
        with pytest.raises(FailedError, match="no KV cache is offered"):
            fetch(session, 40, "UCX")
    finally:
        short.close()
