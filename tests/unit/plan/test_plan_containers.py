"""Images, mounts, srun's options and set-up commands: what recipe and profile say, for each container runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from srtctl.cluster.load import LoadedCluster
from srtctl.cluster.model import ClusterProfile
from srtctl.diagnostics import Collector
from srtctl.plan.build import BuildResult, build_plan
from srtctl.plan.containers import Containers, resolve_image
from srtctl.plan.model import Plan
from srtctl.plan.setup import install_command
from srtctl.recipe.dynamo import DynamoSource
from srtctl.recipe.load import load_recipe
from tests.support import EXAMPLES

SITE = Path("/site/srtslurm.yaml")
RECIPE = """\
schema: 2
name: c
model: {path: /models/q, container: sglang}
resources: {gpus_per_node: 1}
engine: sglang
roles:
  prefill: {nodes: 1, sidecar: true}
  decode: {nodes: 1, sidecar: true}
"""
ALIASES = {"sglang": "lmsysorg/sglang:v0.5.8", "file": "/images/a.sqsh", "near": "images/b.sqsh"}

IMAGES = [
    # what is named, as pyxis takes it, as Apptainer takes it
    ("sglang", "lmsysorg/sglang:v0.5.8", "docker://lmsysorg/sglang:v0.5.8"),
    ("file", "/images/a.sqsh", "/images/a.sqsh"),
    ("near", "/site/images/b.sqsh", "/site/images/b.sqsh"),
    ("./c.sif", "/site/c.sif", "/site/c.sif"),
    ("nginx:1.27", "nginx:1.27", "docker://nginx:1.27"),
    ("images.example/nvidia/x:1", "images.example#nvidia/x:1", "docker://images.example/nvidia/x:1"),
    ("images.example#nvidia/x:1", "images.example#nvidia/x:1", "docker://images.example/nvidia/x:1"),
    ("me@host:5000#x", "me@host:5000#x", "docker://me@host:5000/x"),
    ("localhost/x", "localhost#x", "docker://localhost/x"),
    ("docker://images.example/a/b", "images.example#a/b", "docker://images.example/a/b"),
    ("oras://host.tld/a", "oras://host.tld/a", "oras://host.tld/a"),
    ("dockerd://mine:1", "dockerd://mine:1", "dockerd://mine:1"),
    ("vllm/vllm-openai:v1@sha256:46da", "vllm/vllm-openai:v1@sha256:46da", "docker://vllm/vllm-openai:v1@sha256:46da"),
]


@pytest.mark.parametrize(("name", "pyxis", "apptainer"), IMAGES, ids=[row[0] for row in IMAGES])
def test_an_image_as_each_runtime_takes_it(name: str, pyxis: str, apptainer: str) -> None:
    found = Collector()
    assert resolve_image(name, "p", Containers("pyxis", ALIASES, "/site"), found) == pyxis
    assert resolve_image(name, "p", Containers("apptainer", ALIASES, "/site"), found) == apptainer
    assert resolve_image(name, "p", Containers("none", ALIASES, "/site"), found) == ""
    assert found.items == []


def test_an_unknown_alias_names_the_nearest_where_the_cluster_has_aliases() -> None:
    found = Collector()
    assert resolve_image("sglnag", "model.container", Containers("pyxis", ALIASES), found) == ""
    [error] = found.items
    assert (error.code, error.path, error.hint) == ("plan/container-alias", "model.container", "did you mean `sglang`?")
    assert resolve_image("ubuntu", "p", Containers("pyxis"), found) == "ubuntu"


def build(tmp_path: Path, more: str, runtime: str, **profile: Any) -> BuildResult:
    path = tmp_path / "r.yaml"
    path.write_text(RECIPE + more)
    settings = {"container_runtime": runtime, "containers": ALIASES, **profile}
    return build_plan(load_recipe(path), LoadedCluster(ClusterProfile(**settings), SITE, []))


def good(tmp_path: Path, more: str, runtime: str, **profile: Any) -> Plan:
    result = build(tmp_path, more, runtime, **profile)
    assert result.plan is not None, [d.message for d in result.diagnostics]
    return result.plan


MODEL = "/models/q:/models/q"
MOUNTS = [
    # further lines of the recipe, the profile's mounts, what is mounted beside the run's folder
    ("", [], [MODEL]),
    ("environment: {CACHE: /configs/cache}", [], [MODEL, "/site/configs:/configs"]),
    ("environment: {OUT: /logs/x, M: /model}", [], [MODEL, "/models/q:/model", "${RUN_DIR}/logs:/logs"]),
    ("environment: {OUT: /data/logs, M: /models, N: /logs2, R: a/configs}", [], [MODEL]),
    ("setup_script: deps.sh", [], [MODEL, "/site/configs:/configs"]),
    ("setup_script: /opt/deps.sh", [], [MODEL]),
    ("dynamo: {source: {wheel: 1.2.0}}", [], [MODEL, "/site/wheelhouse/dynamo:/wheelhouse"]),
    ("", {"/shared": "/shared"}, [MODEL, "/shared:/shared"]),
    ("container_mounts: {traces: /traces}", [], [MODEL, "/site/traces:/traces"]),
    ("container_mounts: [/data]", [], [MODEL, "/data:/data"]),
    ("extra_mount: ['/d:/d:ro', '../x:/x']", [], [MODEL, "/d:/d:ro", "/x:/x"]),
    ("extra_mount: ['tmpfs:/dev/shm:size=100%']", [], [MODEL, "tmpfs:/dev/shm:size=100%"]),
    ("extra_mount: ['/b:/t']\ncontainer_mounts: ['/c:/t']", ["/a:/t"], [MODEL, "/c:/t"]),
    ("extra_mount: ['/mine:/models/q']", [], ["/mine:/models/q"]),
]


@pytest.mark.parametrize(("more", "default", "expected"), MOUNTS, ids=[f"{row[0]}+{row[1]}" for row in MOUNTS])
def test_what_is_mounted(tmp_path: Path, more: str, default: Any, expected: list[str]) -> None:
    assert list(good(tmp_path, more, "pyxis", default_mounts=default).runtime.mounts) == expected


@pytest.mark.parametrize("path", ["/models/a b", "/models/a:b", "/models/a,b"])
def test_a_model_whose_path_cannot_be_mounted(tmp_path: Path, path: str) -> None:
    result = build(tmp_path, "", "pyxis", model_paths={"/models/q": path})
    [error] = [d for d in result.diagnostics if d.severity == "error"]
    assert (error.code, error.path) == ("plan/mount", "model.path")
    assert repr(path[9]) in error.message


def test_a_model_from_the_hub_is_not_mounted(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(RECIPE)
    loaded = load_recipe(path, overrides=("model.path=hf:org/name",))
    result = build_plan(loaded, LoadedCluster(ClusterProfile(container_runtime="pyxis"), SITE, []))
    assert result.plan is not None
    assert result.plan.runtime.mounts == ()


FINDINGS = [
    # runtime, further lines, severity and code, path, line and column, part of the message, part of the hint
    (
        "none",
        "container_mounts: ['/a:/a']\nextra_mount: ['/b:/b']",
        "warning plan/mounts-unused",
        "container_mounts",
        (9, 19),
        "nothing is mounted: /a:/a, /b:/b",
        "container_runtime",
    ),
    (
        "pyxis",
        "extra_mount: ['$HOME/x:/x']",
        "error plan/mount",
        "extra_mount",
        (9, 14),
        "holds `$HOME`, which nothing fills in",
        "write the path out",
    ),
    ("pyxis", "extra_mount: ['/o/{job_id}:/x']", "error plan/mount", "extra_mount", (9, 14), "`{job_id}:`", "path out"),
    (
        "pyxis",
        "extra_mount: ['/a:/x', '/b:/y', '/c:/x:ro']",
        "warning plan/mount-twice",
        "extra_mount",
        (9, 14),
        "2 mounts at /x: only the last",
        "remove",
    ),
    (
        "apptainer",
        "extra_mount: ['tmpfs:/dev/shm:size=1g']",
        "warning plan/mount-shared",
        "extra_mount",
        (9, 14),
        "`tmpfs:/dev/shm:size=1g` is left out",
        "",
    ),
    (
        "apptainer",
        "extra_mount: ['tmpfs:/scratch']",
        "error plan/mount",
        "extra_mount",
        (9, 14),
        "is one of enroot's",
        "a folder of the node",
    ),
    (
        "none",
        "dynamo: {install: true}",
        "warning plan/dynamo-not-installed",
        "dynamo.install",
        (9, 19),
        "Dynamo is not installed",
        "`dynamo.install: false`",
    ),
    (
        "none",
        "srun_options: {container-remap-root: '', mem: 0}",
        "warning plan/pyxis-option",
        "srun_options.container-remap-root",
        (9, 38),
        "left out",
        "container_runtime: pyxis",
    ),
    (
        "pyxis",
        "srun_options: {nodelist: n1}",
        "error plan/owned-srun-option",
        "srun_options.nodelist",
        (9, 26),
        "`--nodelist` is set by srtctl",
        "the plan says where",
    ),
    (
        "pyxis",
        "srun_options: {export: NONE}",
        "error plan/owned-srun-option",
        "srun_options.export",
        (9, 24),
        "`--export` is set by srtctl",
        "use `environment`",
    ),
    (
        "none",
        "srun_options: {mem: 0, exclude: n1}",
        "error plan/owned-srun-option",
        "srun_options.exclude",
        (9, 33),
        "`--exclude` is set by srtctl",
        "the plan says where",
    ),
]


@pytest.mark.parametrize(("runtime", "more", "kind", "path", "place", "message", "hint"), FINDINGS)
def test_findings(
    tmp_path: Path, runtime: str, more: str, kind: str, path: str, place: tuple[int, int], message: str, hint: str
) -> None:
    severity, code = kind.split()
    [found] = [d for d in build(tmp_path, more, runtime).diagnostics if d.code == code]
    assert found.span is not None
    assert (found.severity, found.path, (found.span.line, found.span.column)) == (severity, path, place)
    assert message in found.message
    assert hint in found.hint


def test_nothing_of_containers_on_the_nodes_themselves(tmp_path: Path) -> None:
    plan = good(tmp_path, "container_mounts: ['/a:/a']\ndynamo: {source: {pypi: 1.6.1}}", "none", default_mounts=["/x"])
    assert (plan.runtime.container, plan.runtime.mounts) == ("none", ())
    everything = [*plan.workers, *plan.services, *plan.frontends]
    assert {(each.image, each.setup) for each in everything} == {("", ())}


def test_each_role_has_its_options_over_those_of_the_recipe(tmp_path: Path) -> None:
    more = "srun_options: {mem: 0, cpu-bind: none}\n"
    path = tmp_path / "r.yaml"
    path.write_text(RECIPE.replace("decode: {nodes: 1,", "decode: {nodes: 1, srun_options: {cpu-bind: cores},") + more)
    result = build_plan(load_recipe(path), LoadedCluster(ClusterProfile(), None, []))
    assert result.plan is not None
    assert {w.role: dict(w.srun_options) for w in result.plan.workers} == {
        "prefill": {"mem": "0", "cpu-bind": "none"},
        "decode": {"mem": "0", "cpu-bind": "cores"},
    }


def test_who_runs_where_and_what_is_set_up(tmp_path: Path) -> None:
    more = "setup_script: deps.sh\ndynamo: {source: {pypi: 1.6.1}}\n"
    plan = good(tmp_path, more, "pyxis", service_container="images.example/x/etcd:1")
    install = install_command(DynamoSource(pypi="1.6.1"))
    assert {(w.image, w.setup) for w in plan.workers} == {
        ("lmsysorg/sglang:v0.5.8", (("bash", "/configs/deps.sh"), install))
    }
    assert [(s.image, s.setup) for s in plan.services] == [("images.example#x/etcd:1", ())]
    assert [(f.image, f.setup) for f in plan.frontends] == [("lmsysorg/sglang:v0.5.8", (install,))]


SETUPS = [
    # further lines, with the frontend's type; how many commands workers and frontends run
    ("", (0, 0)),
    ("dynamo: {install: true}", (1, 1)),
    ("dynamo: {install: false, source: {pypi: 1.6.1}}", (0, 0)),
    ("dynamo: {source: {wheel: 1.2.0}}\nsetup_script: x.sh", (2, 1)),
    ("setup_script: x.sh", (1, 0)),
]


@pytest.mark.parametrize(("more", "counts"), SETUPS)
def test_how_much_is_set_up(tmp_path: Path, more: str, counts: tuple[int, int]) -> None:
    plan = good(tmp_path, more, "apptainer")
    assert (len(plan.workers[0].setup), len(plan.frontends[0].setup)) == counts


def test_dynamo_is_not_installed_for_workers_that_do_not_use_it(tmp_path: Path) -> None:
    more = "dynamo: {install: true}\nfrontend: {type: sglang-router}\n"
    path = tmp_path / "r.yaml"
    path.write_text(RECIPE.replace(", sidecar: true", "") + more)
    result = build_plan(load_recipe(path), LoadedCluster(ClusterProfile(container_runtime="pyxis"), SITE, []))
    assert result.plan is not None
    assert {w.setup for w in result.plan.workers} == {()}
    assert {f.setup for f in result.plan.frontends} == {()}


INSTALLS = [
    (DynamoSource(pypi="1.6.1"), ("ai-dynamo-runtime==1.6.1", "ai-dynamo==1.6.1")),
    (
        DynamoSource(wheel="1.2.0.dev1"),
        ("--find-links", "/wheelhouse", "ai-dynamo-runtime==1.2.0.dev1", "ai-dynamo==1.2.0.dev1"),
    ),
    (DynamoSource(wheel="/w/ai_dynamo-1.whl"), ("--find-links", "/w", "/w/ai_dynamo-1.whl")),
    (
        DynamoSource(git="https://h/d.git", rev="abc"),
        (
            "ai-dynamo-runtime @ git+https://h/d.git@abc#subdirectory=lib/bindings/python",
            "ai-dynamo @ git+https://h/d.git@abc",
        ),
    ),
]


@pytest.mark.parametrize(("source", "words"), INSTALLS)
def test_what_pip_is_told(source: DynamoSource, words: tuple[str, ...]) -> None:
    command = install_command(source)
    assert command[-len(words) :] == words
    assert command[: -len(words)][-4:] == ("-m", "pip", "install", "--no-input")


SCRIPTS = [
    # runtime, the recipe's script, where it lies for the step
    ("pyxis", "x.sh", "/configs/x.sh"),
    ("none", "x.sh", "/site/configs/x.sh"),
    ("none", "/opt/x.sh", "/opt/x.sh"),
]


@pytest.mark.parametrize(("runtime", "script", "path"), SCRIPTS)
def test_where_the_script_lies(tmp_path: Path, runtime: str, script: str, path: str) -> None:
    plan = good(tmp_path, f"setup_script: {script}", runtime)
    assert {w.setup for w in plan.workers} == {(("bash", path),)}


def test_without_a_profile_the_script_lies_where_the_job_is_submitted() -> None:
    loaded = load_recipe(EXAMPLES[0], overrides=("setup_script=x.sh",))
    result = build_plan(loaded, LoadedCluster(ClusterProfile(), None, []))
    assert result.plan is not None
    assert result.plan.workers[0].setup == (("bash", "configs/x.sh"),)
    assert "plan/setup-script" in {d.code for d in result.diagnostics}


def test_one_segment_where_the_profile_asks_for_it(tmp_path: Path) -> None:
    assert good(tmp_path, "", "none", use_segment_sbatch_directive=True).slurm.segment
    assert not good(tmp_path, "", "none").slurm.segment
