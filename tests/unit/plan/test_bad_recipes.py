"""Bad recipes: each is one small edit of a good one, and is refused with one finding that says where, why and what to do.

`«` in the edit marks the place that must be named, `»` the other place where two contradict.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from srtctl.cli.app import app
from srtctl.cluster.load import LoadedCluster, load_cluster
from srtctl.diagnostics import Diagnostic
from srtctl.plan.build import BuildResult, build_plan
from srtctl.recipe.load import load_recipe

AGG = """\
schema: 2
name: two-workers
model: {path: /models/m, container: sglang}
resources: {gpus_per_node: 8}
slurm: {account: me}
engine: sglang
roles:
  agg:
    nodes: 1
    workers: 2
    gpus: 4
    kv_events: true
    sidecar: {startup_timeout: 600}
    args: {served-model-name: m, tensor-parallel-size: 4}
frontend: {type: dynamo, args: {router-mode: kv}}
dynamo: {request_plane: tcp}
checks: {kv_events: warn}
health_check: {max_attempts: 3}
"""

PD = """\
schema: 2
name: colocated
model: {path: /models/m, container: sglang}
resources: {gpus_per_node: 8}
engine: sglang
dynamo: {sidecar: true}
roles:
  prefill:
    nodes: 1
    gpus: 4
    kv_events: true
    args: {served-model-name: m, tensor-parallel-size: 4}
  decode:
    nodes: colocate
    gpus: 4
    kv_events: true
    args: {tensor-parallel-size: 4}
"""

PYXIS = "cluster: here\ncontainer_runtime: pyxis\ncontainers: {sglang: a/b, etcd: c/d}\n"
PROFILE = "cluster: here\ngpus_per_node: 8\nmodel_paths: {llama: /models/llama}\n"

V1 = """\
name: old
model: {path: /models/m, container: c}
resources: {gpus_per_node: 4, agg_nodes: 1, agg_workers: «8}
backend: {type: sglang}
"""

TP = "tensor-parallel-size: 4"
FIXED = "kv-events-config: {endpoint: 'tcp://*:5557'}"


@dataclass(frozen=True)
class Bad:
    """`edits` of `base` (or of the profile, where the text to replace is there); no edit: `base` is all of the file."""

    code: str
    message: str
    hint: str
    edits: tuple[tuple[str, str], ...]
    base: str = AGG


def bad(code: str, message: str, hint: str, *edits: tuple[str, str], base: str = AGG) -> Bad:
    return Bad(code, message, hint, edits, base)


def pd(code: str, message: str, hint: str, *edits: tuple[str, str]) -> Bad:
    return Bad(code, message, hint, edits, PD)


def misspelt(path: str, meant: str, old: str, new: str, base: str = AGG) -> Bad:
    return Bad("recipe/unknown-key", f"`{path}` is not a known key", f"did you mean `{meant}`?", ((old, new),), base)


CASES = [
    # The file.
    bad("yaml/empty", "holds nothing", "fill it", base="«"),
    bad("recipe/type", "a recipe is a mapping, not a list", "begin with `schema: 2`", base="«- schema: 2\n"),
    bad("placement/oversubscribed", "8 agg workers of 1 GPU do not fit", "raise `roles.agg.nodes` to 2", base=V1),
    bad("yaml/duplicate-key", "first on line 8, again on line 15", "remove one", ("frontend:", "  «agg: {}\nfrontend:")),
    bad("yaml/syntax", "a tab in the indentation", "indent with spaces", ("    workers", "«\tworkers")),
    bad("yaml/leading-zero", "`010` can be read in two ways", "quote it", ("workers: 2", "workers: «010")),
    # A misspelt key, at each level.
    misspelt("frontnd", "frontend", "frontend:", "«frontnd:"),
    misspelt("model.precison", "precision", "container: sglang", "container: sglang, «precison: fp8"),
    misspelt("resources.gpu_per_node", "gpus_per_node", "gpus_per_node: 8", "gpus_per_node: 8, «gpu_per_node: 8"),
    misspelt("slurm.acount", "account", "account: me", "«acount: me"),
    misspelt("engine.typ", "type", "engine: sglang", "engine: {type: sglang, «typ: sglang}"),
    misspelt("roles.decod", "decode", "  decode:", "  decode: {nodes: 1}\n  «decod:", PD),
    misspelt("roles.agg.worker", "workers", "workers: 2", "«worker: 2"),
    misspelt("roles.agg.kv_events.topics", "topic", "kv_events: true", "kv_events: {«topics: a}"),
    misspelt("roles.agg.sidecar.arg", "args", "{startup_timeout: 600}", "{«arg: {}}"),
    misspelt("frontend.typ", "type", "type: dynamo", "«typ: dynamo"),
    misspelt("dynamo.request_plan", "request_plane", "request_plane: tcp", "«request_plan: tcp"),
    misspelt("checks.kv_event", "kv_events", "checks: {kv_events", "checks: {«kv_event"),
    misspelt("checks.kv_events.on_failur", "on_failure", "kv_events: warn", "kv_events: {«on_failur: warn}"),
    misspelt("health_check.max_attempt", "max_attempts", "max_attempts", "«max_attempt"),
    bad("cluster/unknown-key", "`gpu_per_node` is not", "did you mean `gpus_per_node`?", ("gpus_per_node: 8\n", "«gpu_per_node: 8\n")),
    # Values.
    bad("recipe/type", '`roles.agg.kv_events` must be true, false or a mapping, not "on"', "write true, without quotes",
        ("kv_events: true", "kv_events: «on")),
    bad("recipe/value", 'must be `sglang`', "did you mean `sglang`?", ("engine: sglang", "engine: «sgalng")),
    bad("recipe/unknown-key", "`engine.foo` is not a known key: sglang has no such setting",
        "engine flags go into `roles.<role>.args`", ("engine: sglang", "engine: {type: sglang, «foo: 1}")),
    bad("recipe/not-built", "`resources.het_jobs` is known but not built yet", "--allow-unsupported",
        ("gpus_per_node: 8}", "gpus_per_node: 8, het_jobs: «true}")),
    bad("recipe/value", "`frontend.type` must be", "did you mean `dynamo`?", ("type: dynamo", "type: «dinamo")),
    bad("recipe/type", "`frontend.args` must be a mapping, not \"kv\"", "without the dashes",
        ("args: {router-mode: kv}", "args: «kv")),
    bad("frontend/router-mode", "`router-mode` must be one of round-robin, ", "did you mean `kv`?",
        ("router-mode: kv", "router-mode: «kvv")),
    bad("frontend/owned-flag", "`--http-port` of the frontend is set by srtctl", "claimed port",
        ("router-mode: kv", "router-mode: kv, http_port: «8080")),
    bad("frontend/no-process", "`--router-mode` reaches nothing: frontend `none`", "remove it",
        ("type: dynamo, args: {router-mode: ", "type: none, args: {router-mode: «"),
        ("    sidecar: {startup_timeout: 600}\n", "")),
    bad("recipe/type", '`benchmark` must be a mapping, not "sa-bench"', "write {type: sa-bench}",
        ("slurm:", "benchmark: «sa-bench\nslurm:")),
    bad("recipe/type", "`environment` must be a mapping, not a list", "`name: value` pairs",
        ("slurm:", "environment: «[A=1]\nslurm:")),
    bad("recipe/type", "`services` must be a list, not a mapping", "each item begins with `- `",
        ("slurm:", "services: «{a: {command: b}}\nslurm:")),
    bad("recipe/value", "`services.0.port` must be a port, 1 to 65535, or `auto`, not -1", "srtctl chooses one",
        ("slurm:", "services: [{name: a, command: b, port: «-1}]\nslurm:")),
    bad("recipe/value", "`services.0.port` must be a port", "remove the quotes: 80",
        ("slurm:", "services: [{name: a, command: b, port: «'80'}]\nslurm:")),
    misspelt("profiling.typ", "type", "slurm:", "profiling: {«typ: nsys}\nslurm:"),
    bad("recipe/value", '`frontend.nginx_session_affinity_header` is not valid: "a b"', "letters, digits and `-`",
        ("type: dynamo", "type: dynamo, nginx_session_affinity_header: «a b")),
    # Rules between keys.
    bad("recipe/rule", "`roles.prefill` is given without `roles.decode`", "go together", ("  agg:", "  «prefill:")),
    bad("recipe/rule", "`roles.agg` cannot stand beside `decode`", "stands alone", ("  agg:", "  decode: {nodes: 1}\n  «agg:")),
    bad("recipe/rule", "`roles.agg.args.tensor_parallel_size` and `tensor-parallel-size` are the same flag", "remove one",
        (TP, f"{TP}, «tensor_parallel_size: 4")),
    bad("recipe/rule", "`roles.agg.nodes` cannot be `colocate`", "give a number", ("nodes: 1", "nodes: «colocate")),
    # Placement.
    bad("placement/oversubscribed", "8 agg workers of 4 GPUs do not fit on 1 node of 8 GPUs: only 2 can be placed",
        "raise `roles.agg.nodes` to 4", ("workers: 2", "workers: «8")),
    pd("placement/oversubscribed", "1 decode worker of 8 GPUs does not fit on 1 node of 8 GPUs",
       "prefill-0 holds 2 GPUs of them", ("nodes: 1\n    gpus: 4", "nodes: 1\n    gpus: 2"),
       ("served-model-name: m, tensor-parallel-size: 4", "served-model-name: m, tensor-parallel-size: 2"),
       ("nodes: colocate\n    gpus: 4", "nodes: colocate\n    workers: «1\n    gpus: 8"),
       ("args: {tensor-parallel-size: 4}", "args: {tensor-parallel-size: 8}")),
    bad("placement/oversubscribed", "2 agg workers of 16 GPUs do not fit on 1 node of 8 GPUs", "to 4",
        ("workers: 2", "workers: «2"), ("gpus: 4", "gpus: 16"), (TP, "tensor-parallel-size: 16")),
    bad("placement/oversubscribed", "only 1 can be placed", "a node of its own", ("workers: 2", "workers: «2"),
        ("gpus_per_node: 8}", "gpus_per_node: 8, spread_workers: true}")),
    # Parallel sizes.
    bad("sglang/gpu-count", "TP16 is 16 GPUs, but each agg worker has 8", "both are equal", ("workers: 2", "workers: 1"),
        ("gpus: 4", "gpus: 8"), (TP, "tensor-parallel-size: «16")),
    bad("sglang/dp-divides-tp", "3 does not divide 4", "1, 2 or 4",
        (TP, f"{TP}, data-parallel-size: «3, enable-dp-attention: true")),
    bad("sglang/uneven-nodes", "this agg worker would get 8 + 4", "multiple of the node size",
        ("nodes: 1", "nodes: 2"), ("workers: 2", "workers: 1"), ("gpus: 4", "gpus: «12"), (TP, "tensor-parallel-size: 12")),
    bad("sglang/ordinary-dp-nodes", "runs inside one node; this agg worker spans 2", "`enable-dp-attention`",
        ("nodes: 1", "nodes: 2"), ("workers: 2", "workers: 1"), ("gpus: 4", "gpus: 16"), (TP, "tp: 8, dp: «2")),
    bad("args/size-conflict", "`tp: 8` contradicts `tensor-parallel-size: 4`", "keep one", (TP, f"{TP}, tp: «8")),
    bad("args/size", "`tensor-parallel-size` must be a whole number of at least 1, not 'four'", "a plain number",
        (TP, "tensor-parallel-size: «four")),
    # Engine flags.
    bad("sglang/owned-flag", "`--node-rank` is set by srtctl", "follows from the placement", (TP, f"{TP}, node-rank: «0")),
    bad("sglang/owned-flag", "`--dist-init-addr` is set by srtctl", "leader's address", (TP, f"{TP}, dist_init_addr: «a:1")),
    bad("sglang/owned-flag", "`--model-path` is set by srtctl", "write `model.path`", (TP, f"{TP}, model-path: «/m")),
    bad("sglang/dynamo-only-flag", "`--dump-config-to` belongs to `python3 -m dynamo.sglang`", "remove it",
        (TP, f"{TP}, dump-config-to: «/x")),
    bad("sglang/role", "`--disaggregation-mode prefill` contradicts role `agg`", "the role decides",
        (TP, f"{TP}, disaggregation-mode: «prefill")),
    bad("sglang/kv-events-off", "`kv_events` is off for role `agg`", "set `roles.agg.kv_events: true`",
        ("kv_events: true", "kv_events: false"), (TP, f"{TP}, kv-events-config: «{{topic: a}}")),
    pd("sglang/served-name", "`n` contradicts `m`", "write the same name",
       ("served-model-name: m", "served-model-name: »m"), ("args: {tensor", "args: {served-model-name: «n, tensor")),
    # Ports.
    bad("args/port", "`port` must be a port number, not '80a'", "write 1 to 65535", (TP, f"{TP}, port: «80a")),
    bad("args/port", "not 70000", "write 1 to 65535", (TP, f"{TP}, nccl-port: «70000")),
    bad("args/kv-events-config", "a mapping whose endpoint", "`kv_events: true`", (TP, f"{TP}, kv-events-config: «5557")),
    bad("args/kv-events-config", "a mapping whose endpoint", "`kv_events: true`",
        (TP, f"{TP}, kv-events-config: «{{endpoint: 'ipc://x'}}")),
    bad("ports/ephemeral", "port 40000 (http of agg-0.0) lies in the ephemeral range, from 32768 up", "below 32768",
        (TP, f"{TP}, port: «40000")),
    bad("ports/ephemeral", "port 9100 (grpc of agg-0.0) lies in the ephemeral range, from 9000 up", "below 9000",
        ("gpus_per_node: 8\n", "gpus_per_node: 8\nephemeral_port_floor: 9000\n"), (TP, f"{TP}, grpc-port: «9100"),
        ("workers: 2", "workers: 1")),
    bad("ports/conflict", "port 5557 (kv_events of agg-1.0) on node 0 overlaps port 5557 (kv_events of agg-0.0)",
        "leave the port out", (TP, f"{TP}, kv-events-config: «{{endpoint: 'tcp://*:5557'}}")),
    pd("ports/conflict", "port 5557 (kv_events of decode-0.0) on node 0 overlaps port 5557 (kv_events of prefill-0.0)",
       "spread the workers", ("served-model-name: m", "kv-events-config: »{endpoint: 'tcp://*:5557'}"),
       ("args: {tensor", "args: {kv-events-config: «{endpoint: 'tcp://*:5557'}, tensor")),
    # Environment.
    bad("plan/owned-env", "`DYN_SYSTEM_PORT` is set by srtctl", "a claimed port, at most 32767",
        ("    kv_events: true", "    env: {DYN_SYSTEM_PORT: «40000}\n    kv_events: true")),
    bad("plan/owned-env", "`CUDA_VISIBLE_DEVICES` is set by srtctl", "the placement",
        ("slurm:", "environment: {CUDA_VISIBLE_DEVICES: «'0'}\nslurm:")),
    bad("plan/owned-env", "`DYN_REQUEST_PLANE: nats` contradicts `dynamo.request_plane`, which is `tcp`",
        "set `dynamo.request_plane`", ("cluster: here\n", "cluster: here\nenv: {DYN_REQUEST_PLANE: «nats}\n")),
    # The cluster.
    bad("plan/model-alias", "model `lama` is neither a path nor an alias", "did you mean `llama`?",
        ("path: /models/m", "path: «lama")),
    bad("plan/container-alias", "container `sglan` is neither an image nor an alias", "did you mean `sglang`?",
        ("cluster: here\n", PYXIS), ("container: sglang", "container: «sglan")),
    bad("plan/container-alias", "container `ectd` is neither an image nor an alias", "did you mean `etcd`?",
        ("cluster: here\n", f"{PYXIS}service_container: «ectd\n")),
    bad("plan/mount", "mount `~/cache:/cache` holds `~`, which nothing fills in", "write the path out",
        ("cluster: here\n", f"{PYXIS}default_mounts: «{{~/cache: /cache}}\n")),
    bad("plan/owned-srun-option", "srun's `--ntasks` is set by srtctl", "the plan says where each process runs",
        ("slurm:", "srun_options: {ntasks: «8}\nslurm:")),
    bad("plan/owned-sbatch-directive", "sbatch's `--nodes` is set by srtctl", "it follows from the plan",
        ("slurm:", "sbatch_directives: {nodes: «3}\nslurm:")),
    bad("plan/owned-sbatch-directive", "sbatch's `--output` is set by srtctl", "supervision",
        ("cluster: here\n", "cluster: here\ndefault_sbatch_directives: {output: «x.log}\n")),
    bad("cluster/not-built", "`ssh` is known but not built yet", "remove it", ("cluster: here\n", "cluster: here\n«ssh: {}\n")),
]  # fmt: skip
IDS = [f"{at:02}-{case.code.replace('/', '-')}" for at, case in enumerate(CASES)]


@dataclass(frozen=True)
class Written:
    """A bad recipe and its profile on disk; `places` are the marked ones: where, and (or None) the other."""

    recipe: Path
    profile: Path
    places: tuple[str, str | None]

    def planned(self) -> BuildResult:
        return build_plan(load_recipe(self.recipe), load_cluster(self.profile))


def write(case: Bad, folder: Path, name: str = "recipe") -> Written:
    texts = {folder / f"{name}.yaml": case.base, folder / "srtslurm.yaml": PROFILE}
    for old, new in case.edits:
        path = next(path for path, text in texts.items() if old in text)
        assert texts[path].count(old) == 1, old
        texts[path] = texts[path].replace(old, new)
    where, other = place("«", texts), place("»", texts)
    for path, text in texts.items():
        path.write_text(text.replace("«", "").replace("»", ""))
    assert where is not None, "no place is marked"
    return Written(*texts, (where, other))


def in_profile(case: Bad) -> bool:
    return any(old in PROFILE for old, _ in case.edits)


def place(mark: str, texts: dict[Path, str]) -> str | None:
    """`file:line:column` of the one `mark`."""
    found = []
    for path, text in texts.items():
        for number, line in enumerate(text.splitlines() or [text], 1):
            column = line.replace({"«": "»", "»": "«"}[mark], "").find(mark)
            if column >= 0:
                found.append(f"{path}:{number}:{column + 1}")
    assert len(found) <= 1
    return next(iter(found), None)


def errors(found: tuple[Diagnostic, ...]) -> list[Diagnostic]:
    return [item for item in found if item.severity == "error"]


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_one_finding_that_says_where_why_and_what_to_do(case: Bad, tmp_path: Path) -> None:
    written = write(case, tmp_path)
    result = written.planned()
    assert result.plan is None
    assert [(item.code, str(item.span)) for item in errors(result.diagnostics)] == [(case.code, written.places[0])]
    [found] = errors(result.diagnostics)
    assert case.message in found.message
    assert case.hint in found.hint
    assert [str(other.span) for other in found.related] == [place for place in written.places[1:] if place]


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_nothing_is_submitted(case: Bad, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = write(case, tmp_path)
    (tmp_path / "bin").mkdir()
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.write_text(f"#!/bin/sh\necho called > {tmp_path}/called\n")
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", f"{sbatch.parent}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["apply", str(written.recipe), "--cluster", str(written.profile)])
    assert (done.exit_code, done.stdout) == (2, "")
    assert case.code in done.stderr
    assert not (tmp_path / "called").exists()
    assert not (tmp_path / "runs").exists()


def test_they_are_many() -> None:
    assert len(CASES) >= 40


@pytest.mark.parametrize("base", [AGG, PD], ids=["agg", "pd"])
@pytest.mark.parametrize("profile", [True, False])
def test_the_good_ones_are_good(base: str, profile: bool, tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(base)
    (tmp_path / "srtslurm.yaml").write_text(PROFILE)
    cluster = load_cluster(tmp_path / "srtslurm.yaml" if profile else None)
    assert errors(build_plan(load_recipe(path), cluster).diagnostics) == []


def test_all_of_them_at_once(tmp_path: Path) -> None:
    """`srtctl validate` looks at every file, whatever is wrong with the others."""
    cases = {name: case for name, case in zip(IDS, CASES, strict=True) if not in_profile(case)}
    for name, case in cases.items():
        write(case, tmp_path, name)
    (tmp_path / "srtslurm.yaml").write_text(PROFILE)
    done = CliRunner().invoke(app, ["validate", str(tmp_path), "-o", "json", "--cluster", f"{tmp_path}/srtslurm.yaml"])
    assert done.exit_code == 2
    found = {Path(item["file"]).stem: item["diagnostics"] for item in json.loads(done.stdout)}
    assert found.keys() == cases.keys()
    for name, case in cases.items():
        assert [item["code"] for item in found[name] if item["severity"] == "error"] == [case.code], name


def test_the_same_mistake_of_many_workers_is_said_once(tmp_path: Path) -> None:
    many = bad("", "", "", ("nodes: 1", "nodes: 8"), ("workers: 2", "workers: 16"), (TP, f"{TP}, «nccl-port: 40000"))
    assert [item.code for item in errors(write(many, tmp_path).planned().diagnostics)] == ["ports/ephemeral"]


def test_several_rules_are_said_at_once(tmp_path: Path) -> None:
    several = bad(
        "", "", "", ("engine: sglang", "engine: {type: sglang, «foo: 1}"), ("router-mode: kv", "router-mode: kvv"),
        (TP, f"{TP}, node-rank: 0, port: 99999"), ("workers: 2", "workers: 9"),
        ("slurm:", "environment: {ETCD_ENDPOINTS: a}\nslurm:"),
    )  # fmt: skip
    assert sorted(item.code for item in errors(write(several, tmp_path).planned().diagnostics)) == [
        "args/port",
        "frontend/router-mode",
        "placement/oversubscribed",
        "plan/owned-env",
        "recipe/unknown-key",
        "sglang/owned-flag",
    ]


def test_a_variable_of_the_shell_is_said_to_stay_as_it_is(tmp_path: Path) -> None:
    """The public launcher fills it in where it is started; here the same recipe always gives the same plan."""
    case = bad(
        "", "", "", ("path: /models/m", "path: «$MODEL"), ("slurm:", "environment: {A: '${B}', C: '$B/c'}\nslurm:")
    )
    found = [item for item in write(case, tmp_path).planned().diagnostics if item.code == "plan/not-expanded"]
    assert [(item.path, item.severity) for item in found] == [("environment.A", "warning"), ("model.path", "warning")]


def test_a_plane_may_be_repeated(tmp_path: Path) -> None:
    same = bad("", "", "", ("slurm:", "environment: {DYN_REQUEST_PLANE: tcp, «DYN_LOG: debug}\nslurm:"))
    assert errors(write(same, tmp_path).planned().diagnostics) == []


def test_what_is_owned_is_what_the_plan_sets(tmp_path: Path) -> None:
    """Every address and port in a sidecar's or frontend's environment is one that a recipe cannot set."""
    from srtctl.plan.environment import OWNED

    path = tmp_path / "recipe.yaml"
    path.write_text(PD.replace("{sidecar: true}", "{sidecar: true, request_plane: nats}"))
    plan = build_plan(load_recipe(path), LoadedCluster(load_cluster(None).profile, None, [])).plan
    assert plan is not None
    sidecars = [p.sidecar.env for w in plan.workers for p in w.processes if p.sidecar]
    ports = {str(claim.first) for claim in plan.claims}
    ours = {
        name
        for env in (*sidecars, *(f.env for f in plan.frontends))
        for name, value in env.items()
        if "${NODE_ADDR[" in value or value in ports
    }
    direct = {"DYN_ADVERTISE_GRPC_ENDPOINT", "DYN_ROUTER_DIRECT_DISPATCH"}  # with `direct_dispatch` alone
    assert ours | direct | {"DYN_DISCOVERY_BACKEND"} == set(OWNED)
