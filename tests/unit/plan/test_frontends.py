"""Several frontends behind nginx, and NATS' payload limit: what is planned, by table."""

from __future__ import annotations

from pathlib import Path

import pytest

from srtctl.plan.model import Endpoint, Plan
from srtctl.plan.text import plan_text
from tests.support import REPOSITORY, build, plan_of

FOUR = REPOSITORY / "examples/disagg/sglang-attention-dp-4n.yaml"
TWO = REPOSITORY / "examples/agg/sglang-attention-dp-2n.yaml"
SEVERAL = "frontend.enable_multiple_frontends=true"

PLACES = [
    # recipe, overrides, nodes of the frontends, node of nginx (None: there is none)
    (FOUR, (), [0], None),
    (FOUR, ("frontend.num_additional_frontends=2",), [0], None),
    (FOUR, (SEVERAL,), [0, 1, 2, 3], 0),  # nine more, as far as there are nodes
    (FOUR, (SEVERAL, "frontend.num_additional_frontends=1"), [0, 1], 0),
    (FOUR, (SEVERAL, "frontend.num_additional_frontends=0"), [0], None),
    (FOUR, (SEVERAL, "frontend.num_additional_frontends=2", "frontend.placement={node: 3}"), [3, 0, 1], 3),
    (FOUR, (SEVERAL, "frontend.placement={node: 2}"), [2, 3, 0, 1], 2),
    (FOUR, (SEVERAL, "frontend.num_additional_frontends=2", "frontend.placement={node: dedicated}"), [4, 0, 1], 4),
    (FOUR, (SEVERAL, "infra.placement={node: dedicated}"), [0, 1, 2, 3], 0),
    (REPOSITORY / "examples/disagg/sglang-colocated-1n.yaml", (SEVERAL,), [0], None),
]


@pytest.mark.parametrize(("recipe", "overrides", "nodes", "nginx"), PLACES)
def test_frontends_stand_one_a_node(
    recipe: Path, overrides: tuple[str, ...], nodes: list[int], nginx: int | None
) -> None:
    plan = plan_of(recipe, overrides=overrides)
    assert [f.node for f in plan.frontends] == nodes
    assert [f.name for f in plan.frontends] == [f"frontend-{i}" for i in range(len(nodes))]
    assert [p.node for p in plan.proxies] == ([] if nginx is None else [nginx])
    assert plan.endpoint == Endpoint(nodes[0], 8000)
    assert {f.port for f in plan.frontends} == {8000 if nginx is None else 8080}
    for frontend in plan.frontends:
        assert frontend.env["DYN_TCP_RESPONSE_STREAM_HOST"] == f"${{NODE_ADDR[{frontend.node}]}}"
    assert ("nginx.conf" in plan.files) is (nginx is not None)


def test_nodes_that_share_a_host_share_no_port() -> None:
    plan = plan_of(TWO, overrides=(SEVERAL,), nodes_share_host=True)
    assert [f.port for f in plan.frontends] == [8080, 8081]


def conf(*overrides: str) -> list[str]:
    plan = plan_of(TWO, overrides=(SEVERAL, *overrides))
    return [line.strip() for line in plan.files["nginx.conf"].splitlines()]


BALANCED = [
    # settings, lines that must be there, the start of what must not
    ((), ["least_conn;"], ("hash ", "worker_rlimit_nofile")),
    (
        ("frontend.nginx_session_affinity=true",),
        [
            "hash $session_or_request consistent;",
            'map $http_x_dynamo_session_id $session_or_request { "" $request_id; default $http_x_dynamo_session_id; }',
        ],
        ("least_conn",),
    ),
    (
        ("frontend.nginx_session_affinity=true", "frontend.nginx_session_affinity_header=X-Correlation-ID"),
        ['map $http_x_correlation_id $session_or_request { "" $request_id; default $http_x_correlation_id; }'],
        ("map $http_x_dynamo",),
    ),
    (("frontend.nginx_raise_ulimit=true",), ["worker_rlimit_nofile 1048576;"], ()),
]


@pytest.mark.parametrize(("settings", "there", "absent"), BALANCED)
def test_how_nginx_balances(settings: tuple[str, ...], there: list[str], absent: tuple[str, ...]) -> None:
    lines = conf(*settings)
    assert set(there) <= set(lines)
    assert not [line for line in lines if absent and line.startswith(absent)]


def test_nginx_knows_every_frontend_and_nothing_else() -> None:
    servers = [line for line in conf() if line.startswith("server $")]
    assert servers == [f"server ${{NODE_ADDR[{node}]}}:8080 max_fails=0;" for node in (0, 1)]


REFUSED = [
    # recipe, overrides, code, path
    (
        TWO,
        (SEVERAL, "roles.agg.sidecar=false", "frontend.type=sglang-router", "frontend.args={}"),
        "plan/several-frontends",
        "frontend.enable_multiple_frontends",
    ),
    (
        TWO,
        (SEVERAL, "frontend.nginx_session_affinity_header='A b'"),
        "recipe/value",
        "frontend.nginx_session_affinity_header",
    ),
    (TWO, ("frontend.num_additional_frontends=-1",), "recipe/value", "frontend.num_additional_frontends"),
    (TWO, ("infra.nats_max_payload_mb=0",), "recipe/value", "infra.nats_max_payload_mb"),
    (TWO, ("infra.nats_max_payload_mb=65",), "recipe/value", "infra.nats_max_payload_mb"),
]


@pytest.mark.parametrize(("recipe", "overrides", "code", "path"), REFUSED)
def test_refused(recipe: Path, overrides: tuple[str, ...], code: str, path: str) -> None:
    result = build(recipe, overrides=overrides)
    assert [(d.code, d.path) for d in result.diagnostics if d.severity == "error"] == [(code, path)]
    assert all(d.hint for d in result.diagnostics if d.severity == "error")


def test_a_router_alone_needs_no_nginx() -> None:
    one = (SEVERAL, "frontend.num_additional_frontends=0", "roles.agg.sidecar=false")
    plan = plan_of(TWO, overrides=(*one, "frontend.type=sglang-router", "frontend.args={}"))
    assert (len(plan.frontends), plan.proxies) == (1, ())


def test_the_text_says_what_clients_talk_to() -> None:
    text = plan_text(plan_of(TWO, overrides=(SEVERAL,)))
    assert "endpoint   http://<node 0>:8000/v1, nginx before 2 frontends\n" in text
    assert "etcd, nginx, frontend-0" in text
    assert "before" not in plan_text(plan_of(TWO))


def nats(plan: Plan) -> tuple[str, ...]:
    return next((s.argv for s in plan.services if s.name == "nats"), ())


LIMITS = [
    # overrides, nats.conf (None: there is none), whether the limit is said to be unused
    (("dynamo={request_plane: nats}",), None, False),
    (("dynamo={request_plane: nats}", "infra.nats_max_payload_mb=32"), "max_payload: 33554432\n", False),
    (("dynamo={event_plane: nats}", "infra.nats_max_payload_mb=1"), "max_payload: 1048576\n", False),
    (("infra.nats_max_payload_mb=32",), None, True),
    (
        ("infra.nats_max_payload_mb=32", "roles.agg.sidecar=false", "frontend={type: sglang}"),
        None,
        True,
    ),
]


@pytest.mark.parametrize(("overrides", "text", "unused"), LIMITS)
def test_the_limit_of_nats_is_in_its_file(overrides: tuple[str, ...], text: str | None, unused: bool) -> None:
    plan = plan_of(TWO, overrides=overrides)
    assert plan.files.get("nats.conf") == text
    assert (nats(plan)[-2:] == ("--config", "${RUN_DIR}/state/files/nats.conf")) is (text is not None)
    assert ("plan/nats-unused" in [w.code for w in plan.warnings]) is unused


AFFINITY, HEADER = "frontend.nginx_session_affinity=true", "frontend.nginx_session_affinity_header=X-Session"
COLOCATED = REPOSITORY / "examples/disagg/sglang-colocated-1n.yaml"

IDLE = [
    # recipe, overrides, the setting that reaches nothing, hint
    (TWO, (AFFINITY,), "nginx_session_affinity", "`enable_multiple_frontends: true`"),
    (TWO, ("frontend.nginx_raise_ulimit=true",), "nginx_raise_ulimit", "`enable_multiple_frontends: true`"),
    (COLOCATED, (SEVERAL, AFFINITY, HEADER), "nginx_session_affinity", "workers on several nodes"),
    (TWO, (SEVERAL, AFFINITY, "frontend.num_additional_frontends=0"), "nginx_session_affinity", "1` or more"),
    (TWO, (SEVERAL, HEADER), "nginx_session_affinity_header", "set `nginx_session_affinity: true`"),
    (TWO, (SEVERAL, AFFINITY, HEADER), None, ""),
    (TWO, (), None, ""),
]


@pytest.mark.parametrize(("recipe", "overrides", "setting", "hint"), IDLE)
def test_a_setting_of_nginx_that_reaches_nothing_is_said(
    recipe: Path, overrides: tuple[str, ...], setting: str | None, hint: str
) -> None:
    found = [d for d in build(recipe, overrides=overrides).diagnostics if d.code == "plan/nginx-unused"]
    assert [(d.severity, d.path) for d in found] == ([("warning", f"frontend.{setting}")] if setting else [])
    assert all(hint in d.hint for d in found)
