from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from srtctl.checks.deployment import EtcdDiscovery, FileDiscovery, Publisher
from srtctl.checks.model import InputError, Target
from srtctl.checks.plan_file import load
from srtctl.checks.plan_workers import authority

from .scenario import agg_plan

NODES = "0\tnode-a\t10.88.0.1\n1\tnode-b\t10.88.0.2\n2\tnode-c\t10.88.0.3\n"


def plan() -> Any:
    result = agg_plan()
    result["frontends"][0].update(port=8000, env={"ETCD_ENDPOINTS": "http://${NODE_ADDR[0]}:2379"})
    return result


def write(folder: Path, plan: object, nodes: str = NODES) -> tuple[Path, Path]:
    (folder / "plan.json").write_text(plan if isinstance(plan, str) else json.dumps(plan))
    (folder / "nodes.tsv").write_text(nodes)
    return folder / "plan.json", folder / "nodes.tsv"


def test_the_plan_is_bound_to_the_nodes_of_the_job(tmp_path: Path) -> None:
    deployment = load(*write(tmp_path, plan()))
    assert deployment.model == "tiny"
    assert deployment.endpoint == "http://10.88.0.3:8000"
    assert deployment.frontends == {"frontend-0": "http://10.88.0.3:8000"}
    assert deployment.discovery == EtcdDiscovery(("http://10.88.0.1:2379",))
    leader = deployment.worker("agg-0")
    assert leader.serving == ("10.88.0.1:21149",)
    assert leader.publishers == {0: Publisher("agg-0.0", 0, 5200), 1: Publisher("agg-0.1", 1, 5201)}
    assert deployment.checks[0].targets[1] == Target("agg-0", 1)


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--router-mode", "kv"], True),
        (["--router-mode=kv"], True),
        (["--router-mode", "kv", "--router-mode", "random"], False),
        (["--router-mode", "round-robin"], False),
        ([], False),
    ],
)
def test_the_router_mode_is_that_of_the_command_line(argv: list[str], expected: bool, tmp_path: Path) -> None:
    content = plan()
    content["frontends"][0]["argv"] = ["python3", "-m", "dynamo.frontend", *argv]
    assert load(*write(tmp_path, content)).kv_router is expected


def test_a_process_that_registers_itself_is_known_by_its_own_status_server(tmp_path: Path) -> None:
    content = plan()
    process = content["workers"][1]["processes"][0]
    process["env"] |= process["sidecar"]["env"]
    process["sidecar"] = None
    assert load(*write(tmp_path, content)).worker("agg-1").serving == ("10.88.0.2:21156",)


def test_a_sidecar_without_a_host_is_at_its_node(tmp_path: Path) -> None:
    content = plan()
    del content["workers"][1]["processes"][0]["sidecar"]["env"]["DYN_SYSTEM_HOST"]
    assert load(*write(tmp_path, content)).worker("agg-1").serving == ("10.88.0.2:21156",)


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"ETCD_ENDPOINTS": "http://a:1,http://b:2"}, EtcdDiscovery(("http://a:1", "http://b:2"))),
        ({"DYN_DISCOVERY_BACKEND": "etcd", "ETCD_ENDPOINTS": "http://a:1"}, EtcdDiscovery(("http://a:1",))),
        ({"DYN_DISCOVERY_BACKEND": "file", "DYN_FILE_KV": "/shared/kv"}, FileDiscovery(Path("/shared/kv"))),
    ],
)
def test_discovery_is_that_of_the_frontend(env: dict[str, str], expected: object, tmp_path: Path) -> None:
    content = plan()
    content["frontends"][0]["env"] = env
    assert load(*write(tmp_path, content)).discovery == expected


def changed(change: Callable[[Any], object]) -> Any:
    content = plan()
    change(content)
    return content


BAD: dict[str, tuple[Any, str, str]] = {
    "not JSON": ("{", NODES, "not JSON"),
    "not an object": ([1], NODES, "plan version is None, these checks read version 1"),
    "another version": (changed(lambda p: p.update(version=2)), NODES, "plan version is 2"),
    "no model": (changed(lambda p: p.pop("model")), NODES, "'model' is missing"),
    "workers of another shape": (changed(lambda p: p.update(workers=[3])), NODES, "not a plan of version 1"),
    "no frontend": (changed(lambda p: p.update(frontends=[])), NODES, "no frontend"),
    "discovery in memory": (
        changed(lambda p: p["frontends"][0].update(env={"DYN_DISCOVERY_BACKEND": "mem"})),
        NODES,
        "discovery backend 'mem'",
    ),
    "etcd without an address": (changed(lambda p: p["frontends"][0].update(env={})), NODES, "ETCD_ENDPOINTS"),
    "sidecar without a port": (
        changed(lambda p: p["workers"][0]["processes"][0]["sidecar"]["env"].update(DYN_SYSTEM_PORT="0")),
        NODES,
        "sidecar of agg-0.0 has no fixed DYN_SYSTEM_PORT",
    ),
    "worker without a serving sidecar": (
        changed(lambda p: p["workers"][0]["processes"][0].update(sidecar=None)),
        NODES,
        "worker agg-0 has no serving sidecar",
    ),
    "target that is no worker": (
        changed(lambda p: p["checks"][0]["targets"].append({"worker": "agg-9", "dp_rank": 0})),
        NODES,
        "check registration: the plan has no agg-9 rank 0",
    ),
    "target that is no rank": (
        changed(lambda p: p["checks"][0]["targets"].append({"worker": "agg-0", "dp_rank": 2})),
        NODES,
        "check registration: the plan has no agg-0 rank 2",
    ),
    "unknown role": (changed(lambda p: p["workers"][0].update(role="encode")), NODES, "agg-0: role is 'encode'"),
    "timeout of another type": (changed(lambda p: p["checks"][0].update(timeout="long")), NODES, "'long'"),
    "router mode without a value": (
        changed(lambda p: p["frontends"][0].update(argv=["--router-mode"])),
        NODES,
        "not a plan of version 1",
    ),
    "unknown on_failure": (changed(lambda p: p["checks"][0].update(on_failure="x")), NODES, "on_failure is 'x'"),
    "node missing": (plan(), "0\tnode-a\t10.88.0.1\n", "node 1 of the plan is not in the node table, which has [0]"),
    "node table with spaces": (plan(), "0 node-a 10.88.0.1\n", "nodes.tsv:1: expected index, name and address"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_sentence(name: str, tmp_path: Path) -> None:
    content, nodes, words = BAD[name]
    with pytest.raises(InputError) as caught:
        load(*write(tmp_path, content, nodes))
    assert words in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_plan_that_is_not_text(tmp_path: Path) -> None:
    plan_path, nodes_path = write(tmp_path, plan())
    plan_path.write_bytes(b"\xff")
    with pytest.raises(InputError, match="not UTF-8 text"):
        load(plan_path, nodes_path)


@pytest.mark.parametrize(("host", "expected"), [("10.0.0.1", "10.0.0.1:80"), ("fe80::1", "[fe80::1]:80")])
def test_authority(host: str, expected: str) -> None:
    assert authority(host, 80) == expected
