"""How SGLang is started: sidecar, wrapper or plain server; prefill and decode; what each frontend gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from srtctl.plan.model import Endpoint, Plan, Process
from tests.support import EXAMPLES, build, plan_of

BY_NAME = {path.stem: path for path in EXAMPLES}
ATTENTION_PD = BY_NAME["sglang-attention-dp-4n"]
ORDINARY_PD = BY_NAME["sglang-ordinary-dp-4n"]
ORDINARY = BY_NAME["sglang-ordinary-dp-2n"]
ATTENTION = BY_NAME["sglang-attention-dp-2n"]


def processes(plan: Plan) -> dict[str, Process]:
    return {p.name: p for w in plan.workers for p in w.processes}


def option(argv: tuple[str, ...], flag: str) -> str | None:
    return argv[argv.index(flag) + 1] if flag in argv else None


def test_the_bootstrap_address_is_on_the_prefill_leaders_sidecar_only() -> None:
    found = {
        name: option(p.sidecar.argv, "--bootstrap-host")
        for name, p in processes(plan_of(ATTENTION_PD)).items()
        if p.sidecar
    }
    assert found == {"prefill-0.0": "${NODE_ADDR[0]}", "prefill-0.1": None, "decode-0.0": None}


def test_the_bootstrap_port_is_one_value_on_all_nodes_of_a_prefill_worker() -> None:
    plan = plan_of(ATTENTION_PD)
    ports = {n: option(p.argv, "--disaggregation-bootstrap-port") for n, p in processes(plan).items()}
    assert ports == {"prefill-0.0": "8998", "prefill-0.1": "8998", "decode-0.0": None, "decode-0.1": None}
    claims = [(c.node, c.owner) for c in plan.claims if c.purpose == "bootstrap"]
    assert claims == [(0, "prefill-0"), (1, "prefill-0")]


def test_roles_reach_the_engine() -> None:
    modes = {n: option(p.argv, "--disaggregation-mode") for n, p in processes(plan_of(ORDINARY_PD)).items()}
    assert modes == {"prefill-0.0": "prefill", "prefill-1.0": "prefill", "decode-0.0": "decode", "decode-1.0": "decode"}
    assert all("--disaggregation-mode" not in p.argv for p in processes(plan_of(ATTENTION)).values())


def test_a_decode_follower_without_publishers_is_engine_only() -> None:
    follower = processes(plan_of(ATTENTION_PD))["decode-0.1"]
    assert follower.sidecar is None
    assert "--grpc-port" not in follower.argv
    assert follower.ready_port == 6100  # SGLang's followers answer /health on the HTTP port


def test_without_a_sidecar_the_engine_runs_inside_dynamos_wrapper() -> None:
    plan = plan_of(ATTENTION, overrides=("roles.agg.sidecar=false",))
    for name, process in processes(plan).items():
        assert process.argv[:3] == ("python3", "-m", "dynamo.sglang")
        assert process.sidecar is None
        assert option(process.argv, "--grpc-port") is None
        assert option(process.argv, "--nccl-port") == "17500"
        assert "--incremental-streaming-output" not in process.argv
        assert process.env["ETCD_ENDPOINTS"] == "http://${NODE_ADDR[0]}:2379"
        assert process.env["DYN_SYSTEM_PORT"] == "7500"
        assert process.env["DYN_TCP_RPC_HOST"] == f"${{NODE_ADDR[{process.node}]}}"
        assert process.ready_port == 7500, name
    assert plan.checks == ()


def test_an_ordinary_dp_wrapper_gets_its_nccl_port() -> None:
    plan = plan_of(ORDINARY, overrides=("roles.agg.sidecar=false",))
    assert {option(p.argv, "--nccl-port") for p in processes(plan).values()} == {"17500"}


def test_sglang_router_before_aggregated_workers() -> None:
    plan = plan_of(ORDINARY, overrides=("roles.agg.sidecar=false", "frontend={type: sglang-router}"))
    assert plan.frontends[0].argv == (
        *("python3", "-m", "sglang_router.launch_router", "--host", "0.0.0.0", "--port", "8000"),
        *("--worker-urls", "http://${NODE_ADDR[0]}:6100", "http://${NODE_ADDR[1]}:6100"),
    )
    assert (plan.services, plan.checks, plan.endpoint) == ((), (), Endpoint(0, 8000))
    assert {p.argv[2] for p in processes(plan).values()} == {"sglang.launch_server"}
    assert all("DYN_SYSTEM_PORT" not in p.env for p in processes(plan).values())


def test_sglang_router_before_prefill_and_decode() -> None:
    plan = plan_of(
        ORDINARY_PD, overrides=("dynamo.sidecar=false", "frontend={type: sglang-router, args: {policy: cache_aware}}")
    )
    assert plan.frontends[0].argv[7:] == (
        "--pd-disaggregation",
        *("--prefill", "http://${NODE_ADDR[0]}:6100", "8998", "--prefill", "http://${NODE_ADDR[1]}:6100", "8998"),
        *("--decode", "http://${NODE_ADDR[2]}:6100", "--decode", "http://${NODE_ADDR[3]}:6100"),
        *("--policy", "cache_aware"),
    )


def test_direct_clients_talk_to_the_workers_leader() -> None:
    plan = plan_of(ATTENTION, overrides=("roles.agg.sidecar=false", "frontend={type: sglang}"))
    assert (plan.frontends, plan.services, plan.endpoint) == ((), (), Endpoint(0, 6100))


def test_no_frontend_at_all() -> None:
    plan = plan_of(ATTENTION, overrides=("roles.agg.sidecar=false", "frontend={type: none}"))
    assert (plan.frontends, plan.services, plan.endpoint) == ((), (), None)


REFUSED = [
    (ATTENTION, ("frontend={type: sglang-router}",), "plan/sidecar-frontend"),
    (ORDINARY, ("roles.agg.sidecar=false", "frontend={type: sglang}"), "plan/direct-frontend"),
    (ORDINARY_PD, ("dynamo.sidecar=false", "frontend={type: sglang}"), "plan/direct-frontend"),
    (ATTENTION, ("frontend.placement={node: 2}",), "placement/no-such-node"),
]


@pytest.mark.parametrize(("recipe", "overrides", "code"), REFUSED)
def test_refused(recipe: Path, overrides: tuple[str, ...], code: str) -> None:
    result = build(recipe, overrides=overrides)
    assert result.plan is None
    errors = [d for d in result.diagnostics if d.severity == "error"]
    assert {d.code for d in errors} == {code}
    assert all(d.hint and d.path for d in errors)


HEADS = [
    # placement, nodes of the job, (etcd node, frontend node)
    ((), 2, (0, 0)),
    (("frontend.placement={node: 1}",), 2, (0, 1)),
    (("infra.placement={node: dedicated}",), 3, (2, 0)),
    (("infra.placement={node: dedicated}", "frontend.placement={node: dedicated}"), 4, (2, 3)),
    (("benchmark.placement={node: dedicated}", "frontend.placement={node: dedicated}"), 4, (0, 2)),
]


@pytest.mark.parametrize(("overrides", "nodes", "where"), HEADS)
def test_dedicated_nodes_follow_the_workers(overrides: tuple[str, ...], nodes: int, where: tuple[int, int]) -> None:
    plan = plan_of(ATTENTION, overrides=overrides)
    assert plan.nodes == nodes
    assert (plan.services[0].node, plan.frontends[0].node) == where
    assert f"${{NODE_ADDR[{where[0]}]}}" in plan.frontends[0].env["ETCD_ENDPOINTS"]
    assert plan.endpoint is not None
    assert plan.endpoint.node == where[1]
    assert [w.nodes for w in plan.workers] == [(0, 1)]


def test_a_port_offset_moves_every_family() -> None:
    plain, moved = plan_of(ATTENTION), plan_of(ATTENTION, overrides=("resources.port_offset=100",))
    assert [(c.node, c.first + 100, c.count, c.purpose) for c in plain.claims] == [
        (c.node, c.first, c.count, c.purpose) for c in moved.claims
    ]


@pytest.mark.parametrize(
    ("overrides", "exclusive", "warned"),
    [((), True, False), ((), False, True), (("resources.port_offset=64",), False, False)],
)
def test_runs_that_may_share_nodes_are_told_about_the_offset(
    overrides: tuple[str, ...], exclusive: bool, warned: bool
) -> None:
    plan = plan_of(ATTENTION, overrides=overrides, use_exclusive_sbatch_directive=exclusive)
    assert ("plan/shared-nodes" in [w.code for w in plan.warnings]) is warned


@pytest.mark.parametrize(("plane", "needed"), [("request_plane", True), ("event_plane", True)])
def test_nats_runs_when_a_plane_asks_for_it(plane: str, needed: bool) -> None:
    plan = plan_of(ATTENTION, overrides=(f"dynamo={{{plane}: nats}}",))
    assert ("nats" in [s.name for s in plan.services]) is needed
    assert plan.frontends[0].env["NATS_SERVER"] == "nats://${NODE_ADDR[0]}:4222"
    assert "nats" not in [s.name for s in plan_of(ATTENTION).services]


def test_nodes_that_share_a_host_share_no_port() -> None:
    plan = plan_of(ORDINARY_PD, nodes_share_host=True)
    ports = [c.first + i for c in plan.claims for i in range(c.count)]
    assert len(ports) == len(set(ports))


def test_key_order_does_not_matter(tmp_path: Path) -> None:
    """The same recipe with its keys in reverse order plans the same."""
    import yaml

    def reverse(value: object) -> object:
        if isinstance(value, dict):
            return {k: reverse(v) for k, v in reversed(list(value.items()))}
        return value

    data = yaml.safe_load(ORDINARY_PD.read_text())
    paths = [tmp_path / "a" / "r.yaml", tmp_path / "b" / "r.yaml"]
    for path, content in zip(paths, (data, reverse(data)), strict=True):
        path.parent.mkdir()
        path.write_text(yaml.safe_dump(content, sort_keys=False))
    first, second = (plan_of(p) for p in paths)
    assert first.workers == second.workers
    assert first.claims == second.claims
