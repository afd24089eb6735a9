"""What a benchmark, extra services and the small keys become in a plan."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from srtctl.diagnostics import Diagnostic
from srtctl.plan.model import Plan
from srtctl.plan.serial import plan_json, read_plan
from srtctl.plan.text import plan_text
from srtctl.render.bundle import bundle_files
from tests.support import REPOSITORY, build, plan_of

AGG: dict[str, Any] = {
    "schema": 2,
    "name": "r",
    "model": {"path": "/models/m", "container": "sglang"},
    "resources": {"gpus_per_node": 8},
    "engine": "sglang",
    "roles": {"agg": {"nodes": 2, "workers": 4, "gpus": 4, "sidecar": True, "args": {"tensor-parallel-size": 4, "served-model-name": "m"}}},
}  # fmt: skip
ROLE = {"workers": 1, "gpus": 8, "sidecar": True, "args": {"tensor-parallel-size": 8, "served-model-name": "m"}}
PD = {**AGG, "roles": {"prefill": {"nodes": 1, **ROLE}, "decode": {"nodes": 2, **ROLE, "workers": 2}}}
CUSTOM = {"benchmark": {"type": "custom", "command": "run it"}}
PROFILE = {"gpus_per_node": 8, "containers": {"sglang": "/images/sglang.sqsh"}}


def written(tmp_path: Path, base: dict[str, Any], **keys: Any) -> Path:
    path = tmp_path / "r.yaml"
    path.write_text(yaml.safe_dump({**base, **keys}))
    return path


def findings(path: Path) -> list[Diagnostic]:
    return [d for d in build(path).diagnostics if not d.code.startswith("plan/assumed")]


def test_a_client_knows_the_deployment(tmp_path: Path) -> None:
    plan = plan_of(written(tmp_path, PD, **CUSTOM))
    assert plan.client is not None
    assert (plan.client.name, plan.client.node, plan.client.script) == ("benchmark", 0, "run it\n")
    ports = {c.owner: c.first for c in plan.claims if c.purpose == "system"}
    decode = [f"${{NODE_ADDR[1]}}:{ports['decode-0.0']}", f"${{NODE_ADDR[2]}}:{ports['decode-1.0']}"]
    prefill = f"${{NODE_ADDR[0]}}:{ports['prefill-0.0']}"
    assert plan.client.env == {
        "SRT_FRONTEND_HOST": "${NODE_ADDR[0]}",
        "SRT_FRONTEND_PORT": "8000",
        "SRT_FRONTEND_URL": "http://${NODE_ADDR[0]}:8000",
        "SRT_GPUS_PER_NODE": "8",
        "SRT_MODEL_NAME": "m",
        "SRT_MODEL_PATH": "/models/m",
        "SRT_RESULTS_DIR": "${RUN_DIR}/logs/benchmark",
        "SRT_PREFILL_IPS": "${NODE_ADDR[0]}",
        "SRT_PREFILL_ENDPOINTS": prefill,
        "SRT_DECODE_IPS": "${NODE_ADDR[1]},${NODE_ADDR[2]}",
        "SRT_DECODE_ENDPOINTS": ",".join(decode),
        "AIPERF_SERVER_METRICS_URLS": ",".join(f"http://{endpoint}/metrics" for endpoint in (prefill, *decode)),
    }


def test_what_the_recipe_says_wins(tmp_path: Path) -> None:
    benchmark = {**CUSTOM["benchmark"], "env": {"SRT_FRONTEND_URL": "http://elsewhere", "N": 1.50}}
    path = written(tmp_path, AGG, benchmark=benchmark, environment={"AIPERF_SERVER_METRICS_URLS": "http://mine"})
    plan = plan_of(path)
    assert plan.client is not None
    assert (plan.client.env["SRT_FRONTEND_URL"], plan.client.env["N"]) == ("http://elsewhere", "1.5")
    assert "AIPERF_SERVER_METRICS_URLS" not in plan.client.env


def test_workers_without_sidecars_are_told_by_their_own_ports(tmp_path: Path) -> None:
    roles = {"agg": {"nodes": 1, "gpus": 8, "args": {"tensor-parallel-size": 8, "served-model-name": "m"}}}
    plan = plan_of(written(tmp_path, AGG, roles=roles, frontend={"type": "sglang"}, **CUSTOM))
    assert plan.client is not None
    assert plan.client.env["SRT_AGG_ENDPOINTS"] == "${NODE_ADDR[0]}:6100"
    assert plan.client.env["SRT_FRONTEND_URL"] == "http://${NODE_ADDR[0]}:6100"


@pytest.mark.parametrize(("node", "total", "where"), [(1, 2, 1), ("dedicated", 3, 2)])
def test_the_client_is_where_placement_says(tmp_path: Path, node: Any, total: int, where: int) -> None:
    plan = plan_of(written(tmp_path, AGG, benchmark={**CUSTOM["benchmark"], "placement": {"node": node}}))
    assert plan.client is not None
    assert (plan.nodes, plan.client.node) == (total, where)


def test_without_a_frontend_only_a_command_can_run(tmp_path: Path) -> None:
    roles = {"agg": {"nodes": 1, "gpus": 8, "args": {"tensor-parallel-size": 8, "served-model-name": "m"}}}
    plan = plan_of(written(tmp_path, AGG, roles=roles, frontend={"type": "none"}, **CUSTOM))
    assert plan.client is not None
    assert "SRT_FRONTEND_URL" not in plan.client.env
    other = {"type": "gsm8k"}
    [found] = findings(written(tmp_path, AGG, roles=roles, frontend={"type": "none"}, benchmark=other, checks=False))
    assert (found.code, found.path) == ("benchmark/no-endpoint", "benchmark.type")
    assert "frontend `none`" in found.message


def test_what_a_benchmark_lacks_has_its_place(tmp_path: Path) -> None:
    path = written(tmp_path, AGG, benchmark={"type": "sa-bench", "isl": 1, "concurrencies": [1], "num_shots": 2})
    first, second = findings(path)
    assert (first.code, first.path, first.span and first.span.line) == ("benchmark/missing", "benchmark.osl", 1)
    assert (second.code, second.severity) == ("benchmark/unused-setting", "warning")
    assert second.span is not None
    assert path.read_text().splitlines()[second.span.line - 1].strip() == "num_shots: 2"


def bundle(plan: Plan) -> dict[str, str]:
    return bundle_files(plan, "/run", "")


def test_the_job_ends_with_its_client(tmp_path: Path) -> None:
    files = bundle(plan_of(written(tmp_path, AGG, **CUSTOM)))
    last = files["job.sbatch"].splitlines()[-1]
    assert last.startswith("benchmark benchmark 0 client/benchmark.sh ")
    assert files["client/command.sh"] == "#!/bin/bash\n# shellcheck disable=all\nrun it\n"
    assert "serve" not in [line.split(" ")[0] for line in files["job.sbatch"].splitlines()]
    assert 'bash "${RUN_DIR}/client/command.sh"' in files["client/benchmark.sh"]


def test_a_client_has_the_engines_image(tmp_path: Path) -> None:
    plan = plan_of(written(tmp_path, AGG, **CUSTOM), **PROFILE, container_runtime="pyxis")
    assert plan.client is not None
    assert plan.client.image == "/images/sglang.sqsh"
    assert plan_of(written(tmp_path, AGG, **CUSTOM), **PROFILE).client is not None


SERVICES: list[dict[str, Any]] = [
    {"name": "one", "command": ["serve", "--port", "{port}"], "args": ["--at", "{node_ip}"], "port": "auto",
     "placement": {"node": 1}},
    {"name": "two", "command": 'echo {head_ip} {infra_ip} {gpus_per_node} {"json": 1}', "start": "after_frontend",
     "env": {"A": "{node_ip}"}, "inherit_discovery_env": False, "placement": {"node": "infra"}},
    {"name": "three", "command": "x", "readiness": {"tcp": {"port": 9001}}, "placement": {"node": "dedicated"}},
    {"name": "off", "command": "x", "enabled": False, "placement": {"node": "dedicated"}},
    {"name": "quiet", "command": "x", "port": 9002, "readiness": False},
]  # fmt: skip


def test_services(tmp_path: Path) -> None:
    plan = plan_of(written(tmp_path, AGG, services=SERVICES))
    extra = {s.name: s for s in plan.services if s.name != "etcd"}
    assert list(extra) == ["one", "two", "three", "quiet"]
    assert plan.nodes == 3
    assert extra["one"].argv == ("serve", "--port", "7000", "--at", "${NODE_ADDR[1]}")
    assert (extra["one"].port, extra["one"].node, extra["one"].start) == (7000, 1, "before")
    assert extra["one"].env["ETCD_ENDPOINTS"] == "http://${NODE_ADDR[0]}:2379"
    assert extra["two"].argv == ("bash", "-c", 'echo ${NODE_ADDR[0]} ${NODE_ADDR[0]} 8 {"json": 1}')
    assert (extra["two"].port, extra["two"].start, dict(extra["two"].env)) == (None, "after", {"A": "${NODE_ADDR[0]}"})
    assert (extra["three"].port, extra["three"].node) == (9001, 2)
    assert extra["quiet"].port is None
    claimed = {(c.node, c.first, c.owner) for c in plan.claims if c.purpose == "service"}
    assert claimed == {(1, 7000, "one"), (2, 9001, "three"), (0, 9002, "quiet")}


def test_services_start_in_their_order(tmp_path: Path) -> None:
    lines = bundle(plan_of(written(tmp_path, AGG, services=SERVICES, **CUSTOM)))["job.sbatch"].splitlines()
    starts = [
        line.split()[:2]
        for line in lines
        if line.startswith(("service ", "frontend ", "worker agg-3", "gate ", "benchmark "))
    ]
    names = [words[1] if words[0] != "gate" else "gate" for words in starts]
    assert names == ["etcd", "one", "three", "quiet", "frontend-0", "agg-3", "gate", "two", "benchmark"]


def test_an_image_of_its_own(tmp_path: Path) -> None:
    services = [{"name": "a", "command": "x", "container": "/images/a.sqsh"}, {"name": "b", "command": "x"}]
    plan = plan_of(written(tmp_path, AGG, services=services), **PROFILE, container_runtime="pyxis")
    images = {s.name: s.image for s in plan.services}
    assert (images["a"], images["b"]) == ("/images/a.sqsh", "/images/sglang.sqsh")


#: Steps that job.sh starts for itself: their logs and state files carry these names.
JOBS_OWN_STEPS = sorted(
    set(re.findall(r"(?:STEP=|--job-name=)([a-z][a-z-]+)", (REPOSITORY / "src/srtctl/render/job.sh").read_text()))
)

BAD: list[tuple[Any, str, str, str]] = [
    ({"name": "etcd"}, "services/name-taken", "services.0.name", "something else of the run is called so"),
    ({"name": "agg-0"}, "services/name-taken", "services.0.name", "something else of the run is called so"),
    *(({"name": name}, "services/name-taken", "services.0.name", "something else") for name in JOBS_OWN_STEPS),
    ({"command": "x {port}"}, "services/no-port", "services.0.command", "has no `port`"),
    ({"command": []}, "recipe/type", "services.0.command", "must be a list of words, or text"),
    ({"command": [8]}, "recipe/type", "services.0.command", "must be a list of words, or text"),
    ({"port": 40000}, "ports/ephemeral", "services.0.port", "lies in the ephemeral range"),
    ({"readiness": {"port": 40000}}, "ports/ephemeral", "services.0.readiness.port", "lies in the ephemeral range"),
    ({"readiness": {"http": {"port": 1}}}, "recipe/value", "services.0.readiness", "asks for `http`"),
    ({"placement": {"node": "workers"}}, "recipe/value", "services.0.placement.node", "must be a node counted from 0"),
    ({"placement": {"node": 9}}, "placement/no-such-node", "services.0.placement.node", "nodes are 0 to 1"),
    ({"critical": False}, "recipe/value", "services.0.critical", "must be"),
    ({"start": "with_workers"}, "recipe/value", "services.0.start", "must be `before` or `after`"),
    ({"type": "ray"}, "recipe/value", "services.0.type", "must be `generic`"),
    ({"nodes": 2}, "recipe/unknown-key", "services.0.nodes", "is not a known key"),
    ({"name": "a b"}, "recipe/value", "services.0.name", "is not valid"),
]


@pytest.mark.parametrize(("keys", "code", "path", "words"), BAD)
def test_services_that_cannot_be(tmp_path: Path, keys: dict[str, Any], code: str, path: str, words: str) -> None:
    [found] = findings(written(tmp_path, AGG, services=[{"name": "x", "command": "x", **keys}], checks=False))
    assert (found.code, found.path) == (code, path)
    assert words in found.message
    assert found.span is not None
    assert found.hint


PLACEHOLDERS = [
    # words, what the one warning says; none where they may be meant so
    ("x --port {prot}", "nothing fills in `{prot}`"),
    ("x --host {nodeip}", "nothing fills in `{nodeip}`"),
    ("x --gpus {gpus_per_nodes}", "nothing fills in `{gpus_per_nodes}`"),
    ('echo ${PORT} {a,b} {"port": 1}', ""),
    ("awk '{print}'", ""),
]


@pytest.mark.parametrize(("command", "words"), PLACEHOLDERS)
def test_a_placeholder_that_looks_misspelt(tmp_path: Path, command: str, words: str) -> None:
    found = plan_of(written(tmp_path, AGG, services=[{"name": "x", "command": command}], **CUSTOM)).warnings
    told = [(f.code, f.path) for f in found if words and words in f.message]
    assert told == ([("services/placeholder", "services.0.command")] if words else [])
    assert len([f for f in found if f.code == "services/placeholder"]) == len(told)


def test_two_services_of_one_name_or_port(tmp_path: Path) -> None:
    twice = [{"name": "x", "command": "x", "port": 9000}] * 2
    assert [f.code for f in findings(written(tmp_path, AGG, services=twice))] == [
        "services/name-taken",
        "ports/conflict",
    ]


IDENTITY = {
    "model": {"repo": "org/name", "revision": "4f96cc5"},
    "container": {"image": "lmsysorg/sglang:v0.5.11"},
    "frameworks": {"dynamo": "1.6.1", "sglang": 0.50},
}


def test_identity_is_kept_and_shown(tmp_path: Path) -> None:
    plan = plan_of(written(tmp_path, AGG, identity=IDENTITY, enable_config_dump=True, profiling={"type": "none"}))
    assert plan.identity == {**IDENTITY, "frameworks": {"dynamo": "1.6.1", "sglang": "0.5"}}
    line = "identity   model org/name at 4f96cc5, image lmsysorg/sglang:v0.5.11, dynamo 1.6.1, sglang 0.5\n"
    assert line in plan_text(plan)
    assert "identity" not in plan_text(plan_of(written(tmp_path, AGG)))
    assert plan_of(written(tmp_path, AGG)).identity == {}


def test_a_saved_plan_keeps_all_of_it(tmp_path: Path) -> None:
    plan = plan_of(written(tmp_path, AGG, identity=IDENTITY, services=SERVICES, **CUSTOM))
    assert read_plan(plan_json(plan), "p.json") == plan
    data = json.loads(plan_json(plan))
    data["client"]["node"] = 9
    with pytest.raises(Exception, match=r"`client\.node` is 9"):
        read_plan(json.dumps(data), "p.json")
