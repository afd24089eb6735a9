"""From the command line to the settings of a simulated SGLang process."""

from __future__ import annotations

import json

import pytest

from srtctl.sim.address import Address
from srtctl.sim.faults import Faults, parse_faults
from srtctl.sim.model import Model
from srtctl.sim.sglang.config import Config, ConfigError, KvEvents, read_config
from srtctl.sim.sglang.info import server_info
from srtctl.sim.sglang.topology import Topology

MODEL = Model("m", ("LlamaForCausalLM",), 4096, {})
ZMQ = {"publisher": "zmq", "topic": "kv-events", "endpoint": "tcp://*:5200"}
SIZES = ["--tp", "2", "--dp", "2", "--enable-dp-attention", "--nnodes", "2", "--page-size", "16"]
TWO_NODES = [*SIZES, "--dist-init-addr", "10.0.0.1:5000"]


def config(*argv: str, events: object = None) -> Config:
    extra = [] if events is None else ["--kv-events-config", json.dumps(events)]
    return read_config(["--model-path", "m", *argv, *extra])


def test_the_defaults_are_the_real_ones() -> None:
    found = config()
    assert (found.host, found.port, found.grpc_port, found.nccl_port) == ("127.0.0.1", 30000, None, None)
    assert (found.page_size, found.bootstrap_port, found.disaggregation_mode) == (1, 8998, "null")
    assert (found.served_model_name, found.topology, found.kv_events) == ("m", Topology(), None)
    assert found.leader
    assert not found.incremental_streaming
    assert found.follow_bootstrap_room


def test_attention_dp_over_two_nodes() -> None:
    found = config(*TWO_NODES, "--node-rank", "1", events=ZMQ)
    assert found.topology == Topology(nnodes=2, tp=2, dp=2, dp_attention=True)
    assert found.local_ranks == (1,)
    assert found.dist_init == Address("10.0.0.1", 5000)
    assert found.kv_events == KvEvents("kv-events", "*", 5200)


def test_attention_dp_of_one_rank_is_none() -> None:
    assert not config("--enable-dp-attention").topology.dp_attention


@pytest.mark.parametrize(
    ("method", "follow"), [("auto", True), ("follow_bootstrap_room", True), ("round_robin", False), ("x", False)]
)
def test_load_balance_method(method: str, follow: bool) -> None:
    assert config("--load-balance-method", method).follow_bootstrap_room == follow


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        (ZMQ, KvEvents("kv-events", "*", 5200)),
        ({"publisher": "zmq"}, KvEvents("", "*", 5557)),
        ({"publisher": "zmq", "endpoint": "tcp://10.0.0.1:7"}, KvEvents("", "10.0.0.1", 7)),
        ({"publisher": "null"}, None),
        ({}, None),
    ],
)
def test_kv_events(events: dict[str, str], expected: KvEvents | None) -> None:
    assert config(events=events).kv_events == expected


@pytest.mark.parametrize(
    ("argv", "events", "message"),
    [
        ("--nnodes 2 --tp 2", None, "please provide --dist-init-addr as host:port of head node"),
        ("--node-rank 1", None, "node_rank 1 is outside nnodes 1"),
        ("--dist-init-addr leader", None, "--dist-init-addr 'leader' is not host:port"),
        ("--page-size 0", None, "page_size must be at least 1"),
        ("--tp 3 --dp 2 --enable-dp-attention", None, "tp_size (3) must be divisible by dp_size (2)"),
        ("", {"publisher": "nats"}, "Unknown event publisher 'nats'"),
        ("", {"publisher": "zmq", "endpoint": "ipc:///tmp/x"}, "Invalid endpoint 'ipc:///tmp/x'"),
        ("", [], "is not a JSON object"),
    ],
)
def test_what_the_engine_refuses(argv: str, events: object, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        config(*argv.split(), events=events)
    assert message in str(error.value)


def info(*argv: str, fault: str = "", events: object = None) -> dict[str, object]:
    return server_info(config(*argv, events=events), MODEL, parse_faults(fault, 0))


def test_each_node_reports_its_own_event_sources() -> None:
    for node, port in ((0, 5200), (1, 5201)):
        found = info(*TWO_NODES, "--node-rank", str(node), events=ZMQ)
        source = {"dp_rank": node, "endpoint": f"tcp://127.0.0.1:{port}", "topic": "kv-events"}
        assert found["kv_event_sources"] == [{**source, "block_size": 16, "replay_endpoint": None}]
        assert (found["node_rank"], found["nnodes"], found["dist_init_addr"]) == (node, 2, "10.0.0.1:5000")
        assert (found["dp_size"], found["enable_dp_attention"]) == (2, True)
        assert found["context_length"] == 4096


def test_without_kv_events_there_are_no_sources() -> None:
    assert (info()["kv_events"], info()["kv_event_sources"]) == (None, [])


def test_faults_of_the_report() -> None:
    assert "attn_dp_size" not in info(*TWO_NODES)
    folded = info(*TWO_NODES, fault="report_dp_size=1", events=ZMQ)
    assert (folded["dp_size"], folded["attn_dp_size"]) == (1, 2)
    assert "kv_event_sources" not in info(*TWO_NODES, fault="no_sources", events=ZMQ)
    assert server_info(config("--context-length", "99"), MODEL, Faults())["context_length"] == 99


def test_faults_of_the_group() -> None:
    def address(node: int, fault: str) -> object:
        return info(*TWO_NODES, "--node-rank", str(node), fault=fault)["dist_init_addr"]

    assert [address(node, "wrong_group") for node in (0, 1)] == ["10.0.0.1:5001", "10.0.0.1:5002"]
    assert [address(node, "same_group") for node in (0, 1)] == ["127.0.0.1:5000"] * 2
    assert info(fault="wrong_group")["dist_init_addr"] is None
    assert info(fault="same_group")["dist_init_addr"] == "127.0.0.1:5000"
