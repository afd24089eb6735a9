"""Direct dispatch: who advertises, what the frontend is told, which ports must be reachable; and who cannot have it."""

from __future__ import annotations

from pathlib import Path

import pytest

from srtctl.plan.direct import FLAG, VARIABLE
from srtctl.plan.model import Plan
from srtctl.plan.serial import plan_json
from srtctl.render.scripts import job_script
from tests.support import build, plan_of

RECIPE = """\
schema: 2
name: direct
model: {path: /models/m, container: none}
resources: {gpus_per_node: 2}
engine: vllm
roles:
  agg: {nodes: 3, workers: 3, gpus: 2, sidecar: true, args: {tensor-parallel-size: 2}}
frontend: {type: dynamo, args: {router-mode: kv}, placement: {node: 1}}
"""
PD = """\
schema: 2
name: direct
model: {path: /models/m, container: none}
resources: {gpus_per_node: 2}
engine: vllm
dynamo: {sidecar: true, direct_dispatch: true}
roles:
  prefill: {nodes: 1, gpus: 2, args: {tensor-parallel-size: 2}}
  decode: {nodes: 1, gpus: 2, args: {tensor-parallel-size: 2}}
frontend: {type: dynamo, args: {router-mode: kv}}
"""


def written(folder: Path, text: str = RECIPE) -> Path:
    path = folder / "recipe.yaml"
    path.write_text(text)
    return path


def advertised(plan: Plan) -> dict[str, str]:
    """What each sidecar advertises."""
    found = {}
    for worker in plan.workers:
        for process in worker.processes:
            argv = process.sidecar.argv if process.sidecar else ()
            if f"--{FLAG}" in argv:
                found[process.name] = argv[argv.index(f"--{FLAG}") + 1]
    return found


ALL = {f"agg-{n}.0": f"${{NODE_ADDR[{n}]}}:9100" for n in range(3)}
SETTINGS: dict[str, tuple[tuple[str, ...], set[str]]] = {
    "nothing": ((), set()),
    "everybody, by default": (("dynamo.direct_dispatch=true",), set(ALL)),
    "everybody, by role": (("roles.agg.direct_dispatch=true",), set(ALL)),
    "the role has the last word": (("dynamo.direct_dispatch=true", "roles.agg.direct_dispatch=false"), set()),
    "one worker at a time": (("roles.agg.direct_dispatch=[1]",), {"agg-1.0"}),
    "two": (("dynamo.direct_dispatch=true", "roles.agg.direct_dispatch=[2, 0]"), {"agg-0.0", "agg-2.0"}),
    "an empty list is nobody": (("roles.agg.direct_dispatch=[]",), set()),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_who_advertises(tmp_path: Path, name: str) -> None:
    overrides, names = SETTINGS[name]
    plan = plan_of(written(tmp_path), overrides=overrides)
    assert advertised(plan) == {process: ALL[process] for process in names}
    [frontend] = plan.frontends
    assert frontend.env.get(VARIABLE) == ("vllm" if names else None)
    reached = [
        line.split("#")[0].split() for line in job_script(plan, "/run").splitlines() if line.startswith("reach ")
    ]
    assert reached == [["reach", "1", process[4], "9100", process] for process in sorted(names)]
    checks = {check.name: [target.worker for target in check.targets] for check in plan.checks}
    assert checks.get("direct_dispatch") == (["agg-0", "agg-1", "agg-2"] if names else None)


def test_what_it_does_not_use_stays_as_it_was(tmp_path: Path) -> None:
    without, off = plan_of(written(tmp_path)), plan_of(written(tmp_path), overrides=("dynamo.direct_dispatch=false",))
    assert without == off
    assert not [word for word in (FLAG, VARIABLE, "direct_dispatch") if word in plan_json(without)]


def test_prefill_and_decode_say_their_role(tmp_path: Path) -> None:
    plan = plan_of(written(tmp_path, PD))
    assert sorted(advertised(plan)) == ["decode-0.0", "prefill-0.0"]
    for worker in plan.workers:
        sidecar = worker.processes[0].sidecar
        assert sidecar is not None
        assert sidecar.argv[sidecar.argv.index("--disaggregation-mode") + 1] == worker.role


ON = "roles.agg.direct_dispatch=true"
SGLANG = ("engine=sglang", "roles.agg.args={tensor-parallel-size: 2, served-model-name: m}")
REFUSED: dict[str, tuple[tuple[str, ...], str, str, str]] = {
    "an engine that no frontend can call": (
        (*SGLANG, ON),
        "direct/engine",
        "roles.agg.direct_dispatch",
        "cannot call sglang engines itself: the only public design for SGLang",
    ),
    "another frontend": (
        (ON, "frontend={type: vllm-router}", "roles.agg.sidecar=false"),
        "direct/frontend",
        "roles.agg.direct_dispatch",
        "frontend `vllm-router` has no sidecars to pass by",
    ),
    "no sidecar": (
        ("dynamo.direct_dispatch=true", "roles.agg.sidecar=false"),
        "direct/sidecar",
        "dynamo.direct_dispatch",
        "role `agg` has no sidecar",
    ),
    "another protocol": (
        (ON, "roles.agg.sidecar={kind: openengine}"),
        "direct/sidecar-kind",
        "roles.agg.direct_dispatch",
        "role `agg` speaks OpenEngine",
    ),
    "another router mode": (
        (ON, "frontend.args.router-mode=random"),
        "direct/router-mode",
        "roles.agg.direct_dispatch",
        "the frontend's router mode is `random`",
    ),
    "a worker over nodes": (
        (ON, "roles.agg={nodes: 2, gpus: 4, sidecar: true, direct_dispatch: true, args: {tensor-parallel-size: 4}}"),
        "direct/nodes",
        "roles.agg.direct_dispatch",
        "has its gRPC server on 127.0.0.1 alone",
    ),
    "a worker that is not there": (
        ("roles.agg.direct_dispatch=[0, 3]",),
        "direct/worker",
        "roles.agg.direct_dispatch",
        "names worker 3, but the agg workers are 0 to 2",
    ),
    "a flag of ours": (
        (f"roles.agg.sidecar={{args: {{{FLAG}: 'h:1'}}}}",),
        "direct/owned-flag",
        "roles.agg.sidecar",
        f"`--{FLAG}` of the agg sidecars is set by srtctl",
    ),
    "a flag of ours, as a word": (
        (f"roles.agg.sidecar={{args: ['--{FLAG}=h:1']}}",),
        "direct/owned-flag",
        "roles.agg.sidecar",
        f"`--{FLAG}` of the agg sidecars is set by srtctl",
    ),
    "a variable of ours": (
        ("frontend.env.DYN_ROUTER_DIRECT_DISPATCH=vllm",),
        "plan/owned-env",
        "frontend.env.DYN_ROUTER_DIRECT_DISPATCH",
        "is set by srtctl",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_with_a_hint(tmp_path: Path, name: str) -> None:
    overrides, code, path, words = REFUSED[name]
    result = build(written(tmp_path), overrides=overrides)
    assert result.plan is None
    [found] = [d for d in result.diagnostics if d.severity == "error"]
    assert (found.code, found.path) == (code, path)
    assert words in found.message
    assert found.hint


def test_a_hint_tells_how_to_leave_one_role_out(tmp_path: Path) -> None:
    result = build(written(tmp_path, PD), overrides=("roles.decode.sidecar=false",))
    [found] = [d for d in result.diagnostics if d.code == "direct/sidecar"]
    assert "set `roles.decode.direct_dispatch: false`" in found.hint
