"""The simulated vLLM's command line: what it takes, what it makes of it, what it refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from srtctl.sim.address import Address
from srtctl.sim.faults import FaultError, parse_faults
from srtctl.sim.vllm import flags
from srtctl.sim.vllm.config import NATIVE_VARIABLE, Config, ConfigError, KvEvents, Nixl, read_config
from srtctl.sim.vllm.info import server_info
from srtctl.sim.vllm.launch import NOT_HERE, main
from srtctl.sim.vllm.topology import Topology, TopologyError

NATIVE = {NATIVE_VARIABLE: "1"}
HYBRID = "--data-parallel-size 4 --data-parallel-size-local 2 --data-parallel-address n0 --data-parallel-rpc-port 13345"
REPLICA = "--tensor-parallel-size 4 --nnodes 2 --distributed-executor-backend mp --master-addr n0 --master-port 29500"
NIXL = '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'


def read(text: str = "", *more: str, **env: str) -> Config:
    return read_config(["/m", *text.split(), *more], {**NATIVE, **env})


def test_what_is_not_given() -> None:
    config = read_config(["/m"], {})
    assert (config.model, config.served_model_names, config.port, config.grpc_port) == ("/m", ("/m",), 8000, None)
    assert (config.served_ranks, config.local_ranks, config.membership.nnodes) == ((0,), (0,), 1)
    assert (config.kv_events, config.nixl, config.block_size, config.prefix_cache) == (None, None, 16, True)


@pytest.mark.parametrize(
    ("text", "node_rank", "local", "served", "address"),
    [
        (f"{HYBRID} --data-parallel-hybrid-lb --data-parallel-start-rank 0", 0, (0, 1), (0, 1), Address("n0", 13345)),
        (f"{HYBRID} --data-parallel-hybrid-lb --data-parallel-start-rank 2", 1, (2, 3), (2, 3), Address("n0", 13345)),
        (f"{HYBRID} --data-parallel-start-rank 0", 0, (0, 1), (0, 1, 2, 3), Address("n0", 13345)),
        (f"{HYBRID} --data-parallel-start-rank 2 --headless", 1, (2, 3), (), Address("n0", 13345)),
        (f"{REPLICA} --node-rank 0", 0, (0,), (0,), Address("n0", 29500)),
        (f"{REPLICA} --node-rank 1 --headless", 1, (), (), Address("n0", 29500)),
        ("-dp 2 -tp 2", 0, (0, 1), (0, 1), None),
    ],
)
def test_who_runs_and_serves_what(
    text: str, node_rank: int, local: tuple[int, ...], served: tuple[int, ...], address: Address | None
) -> None:
    config = read(text)
    assert (config.node_rank, config.local_ranks, config.served_ranks) == (node_rank, local, served)
    assert config.membership.address == address


def test_what_srtctl_renders_is_understood() -> None:
    events = {"enable_kv_cache_events": True, "publisher": "zmq", "topic": "t", "endpoint": "tcp://*:5200"}
    config = read(
        f"--host 0.0.0.0 --port 6100 --grpc-port 9100 --served-model-name a b --block_size=32 --max-model-len 4k {HYBRID} "
        "--data-parallel-hybrid-lb --data-parallel-start-rank 2",
        *("--kv-transfer-config", NIXL, "--kv-events-config", json.dumps(events)),
        VLLM_NIXL_SIDE_CHANNEL_HOST="10.0.0.1",
        VLLM_NIXL_SIDE_CHANNEL_PORT="5600",
    )
    assert (config.port, config.grpc_port, config.served_model_names) == (6100, 9100, ("a", "b"))
    assert (config.block_size, config.max_model_len) == (32, 4000)
    assert config.kv_events == KvEvents("t", "*", 5200)
    assert config.kv_events.endpoint(3) == "tcp://*:5203"
    assert config.nixl == Nixl(Address("10.0.0.1", 5600), "kv_both")
    assert config.nixl.address_of(3, tp=2) == Address("10.0.0.1", 5606)


def test_the_discovered_mode_lets_each_rank_bind_any_port() -> None:
    assert KvEvents("", "*", 0).endpoint(1) == "tcp://*:*"


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, None),
        ({"publisher": "zmq"}, None),  # not enabled
        ({"enable_kv_cache_events": True, "publisher": "null"}, None),
        ({"enable_kv_cache_events": True}, KvEvents("", "*", 5557)),
        ({"enable_kv_cache_events": True, "endpoint": "tcp://127.0.0.1:7"}, KvEvents("", "127.0.0.1", 7)),
    ],
)
def test_kv_events(config: dict[str, Any], expected: KvEvents | None) -> None:
    assert read("", "--kv-events-config", json.dumps(config)).kv_events == expected


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ("--headless --api-server-count 1", "--api-server-count=N cannot be used with --headless"),
        ("--headless --data-parallel-hybrid-lb", "not applicable in headless mode"),
        ("--data-parallel-hybrid-lb", "--data-parallel-size-local must be set"),
        ("--data-parallel-rank 1", "not simulated"),
        ("--nnodes 2 -tp 2 --master-addr n0 --master-port 1", "distributed executor backend is mp"),
        (f"{REPLICA} --node-rank 1", "needs --headless"),
        (f"{REPLICA} --node-rank 2 --headless", "node 2 of 2"),
        ("--nnodes 2 -tp 2 --distributed-executor-backend mp", "several nodes need --master-addr"),
        ("-dp 2 -dpl 1", "several nodes need --data-parallel-address"),
        (f"{HYBRID} --data-parallel-start-rank 1", "data_parallel_start_rank 1 is no multiple of 2"),
        ("-dp 3 -dpl 2", "no multiple"),
        ("-dp 1 -dpl 2", "must be <= data_parallel_size"),
        ("-tp 0", "tensor_parallel_size must be at least 1"),
        ("--kv-events-config []", "is not a JSON object"),
        ('--kv-events-config {"port":1}', "unexpected keyword argument 'port'"),
        ('--kv-events-config {"enable_kv_cache_events":true,"publisher":"nats"}', "'null' or 'zmq'"),
        ('--kv-events-config {"enable_kv_cache_events":true,"endpoint":"tcp://x"}', "Invalid endpoint"),
        ('--kv-transfer-config {"kv_connector":"NixlConnector"}', "kv_role as one of"),
        ('--kv-transfer-config {"kv_connector":"Other","kv_role":"kv_both"}', "Unsupported connector type: Other"),
    ],
)
def test_what_the_engine_refuses(argv: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(argv)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "argv",
    ["--tp-size 2", "--dp-size 2", "--endpoint x", "--tensor-parallel 2", "--kv-events-config {", "--max-model-len x"],
)
def test_what_is_bad_usage(argv: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        read(argv)
    assert caught.value.code == 2
    assert "vllm-rs serve: error: " in capsys.readouterr().err


def test_the_python_server_has_no_grpc(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read_config(["/m", "--grpc-port", "9100"], {})
    assert "unrecognized arguments: --grpc-port 9100" in capsys.readouterr().err


def test_no_flag_is_listed_twice() -> None:
    spelled = [name for flag in flags.flags(native=True) for name in (*flag.short, flag.name)]
    assert len(spelled) == len(set(spelled))


@pytest.mark.parametrize("argv", [[], ["bench"], ["serve"]])
def test_only_serve_with_a_model(
    argv: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(NATIVE_VARIABLE, raising=False)
    assert main(argv) in (1, 2)
    assert "vllm serve MODEL" in capsys.readouterr().err


def test_faults_of_things_that_vllm_has_not_are_unknown() -> None:
    assert parse_faults("wrong_group", 0).wrong_group
    with pytest.raises(FaultError, match="unknown fault 'wrong_group'"):
        parse_faults("wrong_group", 0, without=NOT_HERE)


def test_a_replica_over_nodes_has_one_rank() -> None:
    with pytest.raises(TopologyError, match="not simulated"):
        Topology(tp=2, dp=2, replica_nodes=2).check()
    with pytest.raises(TopologyError, match="not divisible by nnodes"):
        Topology(tp=3, replica_nodes=2).check()
    assert Topology(tp=4, replica_nodes=2).nodes_of(0) == (0, 1)
    assert Topology(dp=4, dp_local=2).nodes_of(3) == (1,)


def test_server_info_tells_the_ranks_of_the_node() -> None:
    config = read(f"{HYBRID} --data-parallel-hybrid-lb --data-parallel-start-rank 2 --num-gpu-blocks-override 100")
    info = server_info(config, 4096, parse_faults("", 0))
    said = info["parallelism"]
    assert (said["data_parallel_size"], said["data_parallel_rank"], said["data_parallel_size_local"]) == (4, 2, 2)
    assert (info["total_kv_blocks"], info["kv_block_size"], info["max_model_len"]) == (200, 16, 4096)
    said = server_info(config, 4096, parse_faults("report_dp_size=1", 0))["parallelism"]
    assert (said["data_parallel_size"], said["data_parallel_size_local"]) == (1, 1)
