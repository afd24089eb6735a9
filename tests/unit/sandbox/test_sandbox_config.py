"""Configuration text: every line that a job depends on."""

from __future__ import annotations

from ipaddress import IPv4Network
from pathlib import Path

import pytest

from srtctl.sandbox import config
from srtctl.sandbox.layout import Layout
from srtctl.sandbox.profile import profile
from srtctl.sandbox.spec import SandboxSpec, Shape, loopback_shape, netns_shape
from srtctl.sandbox.stack import Stack

LAYOUT = Layout(Path("/s/dev"))
NETNS = netns_shape(SandboxSpec("dev", gpus_per_node=4), IPv4Network("10.213.0.0/24"), "vm", 26624)
LOOPBACK = loopback_shape(SandboxSpec("dev"), 26880, "vm")
PROGRAMS = {"slurmctld": "/x/slurmctld", "slurmd": "/x/slurmd", "nsenter": "/x/nsenter", "unshare": "/x/unshare"}


def lines(text: str) -> dict[str, str]:
    """`Key=value` lines by key; node lines by node."""
    found = {}
    for line in text.splitlines():
        key, _, value = line.partition("=")
        found[f"{key}={value.split()[0]}" if key == "NodeName" else key] = value
    return found


@pytest.mark.parametrize(
    ("shape", "key", "value"),
    [
        (NETNS, "SlurmctldHost", "vm(10.213.0.1)"),
        (NETNS, "CommunicationParameters", "NoCtldInAddrAny"),
        (NETNS, "GresTypes", "gpu"),
        (NETNS, "AuthInfo", "socket=/s/dev/munge/socket"),
        (NETNS, "OverTimeLimit", "0"),
        (NETNS, "KillWait", "10"),
        (NETNS, "SlurmdParameters", "config_overrides"),
        (
            NETNS,
            "NodeName=sandbox-1",
            "sandbox-1 NodeHostname=sandbox-1 NodeAddr=10.213.0.3 Port=6818 CPUs=64 RealMemory=262144 Gres=gpu:4 "
            "State=UNKNOWN",
        ),
        (LOOPBACK, "SlurmctldHost", "vm(127.0.0.1)"),
        (LOOPBACK, "SlurmctldPort", "26880"),
        (LOOPBACK, "SlurmUser", "me"),
        (LOOPBACK, "SlurmdUser", "me"),
        (
            LOOPBACK,
            "NodeName=sandbox-1",
            "sandbox-1 NodeHostname=vm NodeAddr=127.213.1.2 Port=26882 CPUs=64 RealMemory=262144 Gres=gpu:1 "
            "State=UNKNOWN",
        ),
    ],
)
def test_slurm_conf(shape: Shape, key: str, value: str) -> None:
    assert lines(config.slurm_conf(shape, LAYOUT, "me"))[key] == value


def test_loopback_controller_binds_any_address() -> None:
    assert "CommunicationParameters" not in lines(config.slurm_conf(LOOPBACK, LAYOUT, "me"))


def test_no_file_lies_outside_the_state_folder() -> None:
    paths = [value for value in lines(config.slurm_conf(NETNS, LAYOUT, "root")).values() if value.startswith("/")]
    assert {path for path in paths if not path.startswith("/s/dev/")} == {"/bin/true"}


def test_without_gpus_there_is_no_gres() -> None:
    shape = netns_shape(SandboxSpec(gpus_per_node=0), IPv4Network("10.213.0.0/24"), "vm", 26624)
    assert "gres" not in config.slurm_conf(shape, LAYOUT, "root").lower()
    assert config.gres_conf(shape, LAYOUT) == ""


def test_gres_conf_names_every_device_file() -> None:
    assert config.gres_conf(NETNS, LAYOUT) == "AutoDetect=off\nName=gpu File=/s/dev/gpu/gpu[0-3]\n"


@pytest.mark.parametrize(
    ("version", "plugin"),
    [((0, 0), "cgroup/v1"), ((22, 5), "cgroup/v1"), ((24, 5), "disabled"), ((25, 11), "disabled")],
)
def test_cgroup_plugin(version: tuple[int, int], plugin: str) -> None:
    assert config.cgroup_conf(version) == f"CgroupPlugin={plugin}\n"


def test_hosts_resolve_nodes_and_this_machine() -> None:
    table = dict(reversed(line.split()[:2]) for line in config.hosts(NETNS).splitlines() if ":" not in line)
    assert table == {
        "localhost": "127.0.0.1",
        "vm": "10.213.0.1",
        "sandbox-0": "10.213.0.2",
        "sandbox-1": "10.213.0.3",
    }


def test_a_loopback_node_is_plain_slurmd() -> None:
    expected = ["/x/slurmd", "-D", "-f", "/s/dev/slurm.conf", "-N", "sandbox-1"]
    assert config.node_command(LOOPBACK, LAYOUT, 1, PROGRAMS) == expected


def test_a_netns_node_enters_its_namespace_first() -> None:
    argv = config.node_command(NETNS, LAYOUT, 1, PROGRAMS)
    assert argv[:3] == ["/x/nsenter", "--net=/run/netns/srtctl-dev-1", "/x/unshare"]
    steps = argv[-1].split(" && ")
    assert steps == [
        "mount --bind /s/dev/hosts /etc/hosts",
        "hostname sandbox-1",
        "echo 32768 60999 >/proc/sys/net/ipv4/ip_local_port_range",
        "exec /x/slurmd -D -f /s/dev/slurm.conf -N sandbox-1",
    ]


def test_profile() -> None:
    data = profile(LOOPBACK, LAYOUT, Stack(Path("/stack")))
    env = data.pop("env")
    assert data == {
        "cluster": "sandbox",
        "default_partition": "sandbox",
        "default_time_limit": "00:30:00",
        "gpus_per_node": 1,
        "default_gpu_type": "sim",
        "model_paths": {"qwen3-0.6b": "/s/dev/model/qwen3-0.6b"},
        "containers": {"sglang": "/s/dev/image", "vllm": "/s/dev/image", "trtllm": "/s/dev/image"},
        "container_runtime": "none",
        "output_dir": "/s/dev/runs",
        "slurm_conf": "/s/dev/slurm.conf",
        "runtime_python": "/stack/bin/python3",
        "dynamo_python": "/stack/bin/python3",
        "nodes_share_host": True,
        "mpi": "none",
    }
    assert env["PATH"].split(":")[:2] == ["/s/dev/image/bin", "/stack/bin"]
    assert env["PYTHONPATH"] == "/s/dev/image"
    assert env["HF_HUB_OFFLINE"] == "1"
    assert all(env[name].startswith("/s/dev/") for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME"))
    assert profile(NETNS, LAYOUT, Stack(Path("/stack")))["nodes_share_host"] is False
