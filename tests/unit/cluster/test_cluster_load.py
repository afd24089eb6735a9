"""Reading a cluster profile."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from srtctl.cluster.load import NOT_BUILT, LoadedCluster, load_cluster
from srtctl.cluster.model import ClusterProfile

WHOLE = """\
cluster: gb300
default_account: me
default_partition: batch
default_time_limit: 04:00:00
gpus_per_node: 4
default_gpu_type: gb300
network_interface: enP6p9s0np0
model_paths: {dsr1: /models/dsr1}
containers: {sglang: /images/sglang.sqsh}
container_runtime: pyxis
service_container: images.example#nvidia/etcd-nats
default_mounts: {/shared/cache: /root/.cache, traces: /traces}
use_segment_sbatch_directive: true
default_sbatch_directives: {mem: 0, exclusive: null}
use_gpus_per_node_directive: false
use_exclusive_sbatch_directive: false
output_dir: /shared/runs
visible_devices_env: HIP_VISIBLE_DEVICES
ephemeral_port_floor: 9000
nodes_share_host: true
runtime_python: /usr/bin/python3
dynamo_python: /opt/dynamo/bin/python3
mpi: pmi2
slurm_conf: /etc/slurm/slurm.conf
env: {RATIO: 1.50, NO: yes}
"""


@pytest.fixture
def load(tmp_path: Path):
    def run(text: str) -> LoadedCluster:
        path = tmp_path / "srtslurm.yaml"
        path.write_text(text)
        return load_cluster(path)

    return run


def test_every_key(load) -> None:
    loaded = load(WHOLE)
    assert loaded.diagnostics == []
    profile = loaded.profile
    assert profile is not None
    assert set(yaml.safe_load(WHOLE)) == set(ClusterProfile.model_fields)
    assert profile.default_mounts == ["/shared/cache:/root/.cache", "traces:/traces"]
    assert profile.default_time_limit == "04:00:00"
    assert profile.default_sbatch_directives == {"mem": "0", "exclusive": None}
    assert profile.env == {"RATIO": "1.50", "NO": "yes"}
    assert (profile.ephemeral_port_floor, profile.nodes_share_host, profile.gpus_per_node) == (9000, True, 4)


def test_values_keep_their_places(load) -> None:
    loaded = load("cluster: a\nenv:\n  A: 1\n")
    assert str(loaded.span("env.A")) == f"{loaded.path}:3:6"
    assert load_cluster(None).span("env.A") is None


def test_none_is_the_defaults() -> None:
    loaded = load_cluster(None)
    assert (loaded.profile, loaded.path, loaded.diagnostics) == (ClusterProfile(), None, [])


PROBLEMS = [
    # added line, code, column, part of the message, part of the hint
    ("gpu_per_node: 4", "cluster/unknown-key", 1, "`gpu_per_node` is not a known key", "did you mean `gpus_per_node`?"),
    ("gpus_per_node: '4'", "cluster/type", 16, "a whole number", "write 4, without quotes"),
    ("nodes_share_host: yes", "cluster/type", 19, "true or false", "write true"),
    ("container_runtime: docker", "cluster/value", 20, "`none` or `pyxis` or `apptainer`", "How processes enter"),
    ("container_runtime: pyxsi", "cluster/value", 20, "pyxis", "did you mean `pyxis`?"),
    ("ephemeral_port_floor: 80", "cluster/value", 23, "at least 1024, not 80", "First port"),
    ("ephemeral_port_floor: 70000", "cluster/value", 23, "at most 65536, not 70000", "First port"),
    ("default_time_limit: soon", "cluster/value", 21, "is not valid", "HH:MM:SS"),
    ("env: {A: true}", "cluster/type", 10, "`env.A` must be text", "quote"),
    ("env: {1A: x}", "cluster/value", 7, "`env.1A` is not a valid name", "letters"),
    ("model_paths: {m: 5}", "cluster/type", 18, "`model_paths.m` must be text, not 5", 'quote it: "5"'),
    ("model_paths: /models", "cluster/type", 14, "must be a mapping", "Names that recipes"),
    ("default_mounts: /data", "cluster/type", 17, "must be a mapping of source to target, or a list", "What every"),
    ("default_mounts: {/data: data}", "cluster/value", 17, "whose target is no absolute path", "SOURCE:TARGET"),
    ("ssh: {host: login}", "cluster/not-built", 1, "`ssh` is known but not built yet", "remove it"),
    ("gpus_per_node: 010", "yaml/leading-zero", 16, "two ways", "quote it"),
]


@pytest.mark.parametrize(("line", "code", "column", "message", "hint"), PROBLEMS, ids=[case[0] for case in PROBLEMS])
def test_one_wrong_key_is_one_error_and_the_others_hold(
    load, tmp_path: Path, line: str, code: str, column: int, message: str, hint: str
) -> None:
    loaded = load(f"cluster: mine\n{line}\noutput_dir: /runs\n")
    [found] = loaded.diagnostics
    assert (found.code, str(found.span), found.severity) == (code, f"{tmp_path}/srtslurm.yaml:2:{column}", "error")
    assert message in found.message
    assert hint in found.hint
    assert loaded.profile is not None
    assert (loaded.profile.cluster, loaded.profile.output_dir) == ("mine", "/runs")


@pytest.mark.parametrize("key", [key for key, (severity, _) in NOT_BUILT.items() if severity == "warning"])
def test_what_is_not_built_but_does_no_harm_is_a_warning(load, key: str) -> None:
    loaded = load(f"{key}: true\n")
    [found] = loaded.diagnostics
    assert (found.code, found.severity, found.path) == ("cluster/not-built", "warning", key)
    assert "left out" in found.message


def test_what_is_not_built_and_not_asked_for_is_silent(load) -> None:
    assert load("srtctl_root: false\nssh: null\n").diagnostics == []


def test_all_problems_in_file_order(load) -> None:
    found = load("ssh: {}\ncluser: x\ngpus_per_node: 0\n").diagnostics
    assert [(item.code, item.span.line) for item in found] == [
        ("cluster/not-built", 1),
        ("cluster/unknown-key", 2),
        ("cluster/value", 3),
    ]


@pytest.mark.parametrize(
    ("text", "code"),
    [("- a\n", "cluster/type"), ("text\n", "cluster/type"), ("", "yaml/empty"), ("a: [1\n", "yaml/syntax")],
)
def test_no_profile_at_all(load, text: str, code: str) -> None:
    loaded = load(text)
    assert loaded.profile is None
    assert [item.code for item in loaded.diagnostics] == [code]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    loaded = load_cluster(tmp_path / "no.yaml")
    assert loaded.profile is None
    assert [item.code for item in loaded.diagnostics] == ["yaml/not-found"]
