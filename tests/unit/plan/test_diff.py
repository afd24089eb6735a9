"""What changes from one plan to another."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from plans import disaggregated

from srtctl.plan.diff import Change, Edit, diff_plans
from srtctl.plan.difftext import diff_text
from srtctl.plan.model import Health, Plan, Process
from tests.support import EXAMPLES, REPOSITORY, example_id, plan_of

EXAMPLE = REPOSITORY / "examples" / "agg" / "sglang-attention-dp-2n.yaml"
PLAN = plan_of(EXAMPLE)


def changes(*overrides: str, **options: Any) -> tuple[Change, ...]:
    """From the example to the same with overrides."""
    return diff_plans(PLAN, plan_of(EXAMPLE, overrides=overrides, **options)).changes


@pytest.mark.parametrize("example", EXAMPLES, ids=example_id)
def test_a_plan_equals_itself(example: Path) -> None:
    assert diff_plans(plan_of(example), plan_of(example)).equal


def test_where_a_plan_came_from_is_no_difference() -> None:
    other = replace(PLAN, source="elsewhere.yaml", warnings=())
    assert diff_plans(PLAN, other).equal
    assert diff_text(diff_plans(PLAN, other)) == f"no difference: {EXAMPLE} and elsewhere.yaml run the same\n"


def test_one_flag_on_all_processes() -> None:
    edit = Edit("--page-size 16", "--page-size 32")
    assert changes("roles.agg.args.page-size=32") == (Change("commands", "changed", ("agg-0.0", "agg-0.1"), (edit,)),)


def test_a_flag_comes_and_one_goes() -> None:
    found = changes("roles.agg.args.mem-fraction-static=0.8", unset=("roles.agg.args.page-size",))
    edits = (Edit("--page-size 16", None), Edit(None, "--mem-fraction-static 0.8"))
    assert found == (Change("commands", "changed", ("agg-0.0", "agg-0.1"), edits),)


def test_settings_of_the_job() -> None:
    found = changes(
        "slurm.time_limit=2:00:00", "environment.A=b c", "sbatch_directives.reservation=x", "checks.kv_events=warn"
    )
    assert [(c.section, c.kind, c.edits) for c in found] == [
        ("slurm", "changed", (Edit(None, "time limit 2:00:00"), Edit(None, "--reservation=x"))),
        ("environment", "changed", (Edit(None, "A='b c'"),)),
        ("checks", "changed", (Edit("on failure: fail", "on failure: warn"),)),
    ]


def test_a_worker_more() -> None:
    by_section = {c.section: c for c in changes("roles.agg.nodes=4", "roles.agg.workers=2") if c.section != "commands"}
    assert by_section["job"].edits == (Edit("nodes 2", "nodes 4"),)
    placed = "agg-1: sglang agg, DP2, node 2 GPU 0 serving ranks 0-1; node 3 GPU 0"
    assert by_section["placement"].edits == (Edit(None, placed),)
    added = [c for c in changes("roles.agg.nodes=4", "roles.agg.workers=2") if c.kind == "added"]
    assert [c.subjects for c in added if c.section == "ports"] == [("agg-1.0",), ("agg-1.1",)]
    assert [c.subjects for c in added if c.section == "commands"] == [
        ("agg-1.0",), ("agg-1.0 sidecar",), ("agg-1.1",), ("agg-1.1 sidecar",)
    ]  # fmt: skip


def test_a_worker_less_is_the_opposite() -> None:
    more = plan_of(EXAMPLE, overrides=("roles.agg.nodes=4", "roles.agg.workers=2"))
    there, back = diff_plans(PLAN, more), diff_plans(more, PLAN)
    assert {c.kind for c in there.changes} == {"changed", "added"}
    assert {c.kind for c in back.changes} == {"changed", "removed"}
    lines = [{(c.section, s, e.new, e.old) for c in there.changes for s in c.subjects for e in c.edits}]
    assert lines == [{(c.section, s, e.old, e.new) for c in back.changes for s in c.subjects for e in c.edits}]


def test_a_move_is_one_line() -> None:
    """The same workers on other nodes: addresses follow, and are no change of their own."""
    one = plan_of(EXAMPLE, overrides=("roles.agg.nodes=4", "roles.agg.workers=2"))
    moved = _moved(one, {0: 2, 1: 3, 2: 0, 3: 1})
    found = diff_plans(one, moved).changes
    assert [(c.section, len(c.edits)) for c in found] == [("placement", 2)]


def _moved(plan: Plan, to: dict[int, int]) -> Plan:
    """The plan with its workers on other nodes."""
    text = {f"${{NODE_ADDR[{a}]}}": f"${{NODE_ADDR[{b}]}}" for a, b in to.items()}

    def address(value: str) -> str:
        for old, new in text.items():
            if value.startswith(old):
                return value.replace(old, new)
        return value

    def process(p: Process) -> Process:
        assert p.sidecar is not None
        side = replace(
            p.sidecar,
            argv=tuple(map(address, p.sidecar.argv)),
            env={k: address(v) for k, v in p.sidecar.env.items()},
        )
        return replace(p, node=to[p.node], argv=tuple(map(address, p.argv)), sidecar=side)

    workers = tuple(
        replace(w, nodes=tuple(to[n] for n in w.nodes), processes=tuple(map(process, w.processes)))
        for w in plan.workers
    )
    owners = {p.name: p.node for w in workers for p in w.processes}
    claims = tuple(replace(c, node=owners.get(c.owner, c.node)) for c in plan.claims)
    return replace(plan, workers=workers, claims=claims)


def first(edit: Callable[[Process], Process]) -> Callable[[Plan], Plan]:
    """The plan with its first process edited."""

    def apply(plan: Plan) -> Plan:
        worker = plan.workers[0]
        processes = (edit(worker.processes[0]), *worker.processes[1:])
        return replace(plan, workers=(replace(worker, processes=processes), *plan.workers[1:]))

    return apply


EVERYTHING: dict[str, tuple[Callable[[Plan], Plan], str]] = {
    "name": (lambda p: replace(p, name="x"), "job"),
    "nodes": (lambda p: replace(p, nodes=9), "job"),
    "gpus_per_node": (lambda p: replace(p, gpus_per_node=9), "job"),
    "model path": (lambda p: replace(p, model=replace(p.model, path="x")), "job"),
    "served name": (lambda p: replace(p, model=replace(p.model, served_name="x")), "job"),
    "endpoint": (lambda p: replace(p, endpoint=None), "job"),
    "health": (lambda p: replace(p, health=Health(p.health.startup, 1)), "job"),
    "python": (lambda p: replace(p, runtime=replace(p.runtime, python="x")), "job"),
    "interface": (lambda p: replace(p, runtime=replace(p.runtime, network_interface="ib0")), "job"),
    "mpi": (lambda p: replace(p, runtime=replace(p.runtime, mpi="x")), "job"),
    "account": (lambda p: replace(p, slurm=replace(p.slurm, account="x")), "slurm"),
    "partition": (lambda p: replace(p, slurm=replace(p.slurm, partition="x")), "slurm"),
    "gpus directive": (lambda p: replace(p, slurm=replace(p.slurm, gpus_directive=False)), "slurm"),
    "exclusive": (lambda p: replace(p, slurm=replace(p.slurm, exclusive=False)), "slurm"),
    "directives": (lambda p: replace(p, slurm=replace(p.slurm, directives={"x": None})), "slurm"),
    "environment": (lambda p: replace(p, environment={"A": ""}), "environment"),
    "engine": (lambda p: replace(p, workers=(replace(p.workers[0], engine="x"),)), "placement"),
    "role": (lambda p: replace(p, workers=(replace(p.workers[0], role="x"),)), "placement"),
    "dp size": (lambda p: replace(p, workers=(replace(p.workers[0], dp_size=9),)), "placement"),
    "launcher": (lambda p: replace(p, workers=(replace(p.workers[0], launcher="mpi"),)), "placement"),
    "gpus": (first(lambda p: replace(p, gpus=())), "placement"),
    "serves": (first(lambda p: replace(p, serves=())), "placement"),
    "node": (first(lambda p: replace(p, node=1)), "placement"),
    "argv": (first(lambda p: replace(p, argv=(*p.argv, "--x"))), "commands"),
    "argv order": (first(lambda p: replace(p, argv=(*p.argv[:3], *p.argv[5:], *p.argv[3:5]))), "commands"),
    "env": (first(lambda p: replace(p, env={})), "commands"),
    "ready port": (first(lambda p: replace(p, ready_port=1)), "ports"),
    "publishers": (first(lambda p: replace(p, publishers=())), "ports"),
    "sidecar": (first(lambda p: replace(p, sidecar=None)), "commands"),
    "sidecar mode": (first(lambda p: replace(p, sidecar=replace(p.sidecar, mode="telemetry"))), "commands"),  # type: ignore[type-var]
    "claims": (lambda p: replace(p, claims=p.claims[1:]), "ports"),
    "services": (lambda p: replace(p, services=()), "services"),
    "a service's port": (lambda p: replace(p, services=(replace(p.services[0], port=1),)), "services"),
    "frontends": (lambda p: replace(p, frontends=()), "frontends"),
    "files": (lambda p: replace(p, files={"a.yaml": "x"}), "files"),
    "checks": (lambda p: replace(p, checks=()), "checks"),
    "a check's time": (lambda p: replace(p, checks=(replace(p.checks[0], timeout=1.5), *p.checks[1:])), "checks"),
    "a check's targets": (lambda p: replace(p, checks=(replace(p.checks[0], targets=()), *p.checks[1:])), "checks"),
    "a check's settings": (lambda p: replace(p, checks=(replace(p.checks[0], settings={"n": 1}), *p.checks[1:])), "checks"),
}  # fmt: skip


@pytest.mark.parametrize(("edit", "section"), EVERYTHING.values(), ids=EVERYTHING.keys())
def test_whatever_decides_what_runs_is_a_difference(edit: Callable[[Plan], Plan], section: str) -> None:
    found = diff_plans(PLAN, edit(PLAN))
    assert section in {c.section for c in found.changes}
    assert diff_plans(edit(PLAN), PLAN).changes


def test_data_is_json_of_the_same() -> None:
    diff = diff_plans(PLAN, plan_of(EXAMPLE, overrides=("roles.agg.args.page-size=32",)))
    assert json.loads(json.dumps(diff.as_dict())) == {
        "old": str(EXAMPLE),
        "new": str(EXAMPLE),
        "equal": False,
        "changes": [
            {
                "section": "commands",
                "kind": "changed",
                "subjects": ["agg-0.0", "agg-0.1"],
                "edits": [{"old": "--page-size 16", "new": "--page-size 32"}],
            }
        ],
    }


def test_the_text_groups_what_is_alike(tmp_path: Path) -> None:
    old = disaggregated(tmp_path, 64)
    new = disaggregated(tmp_path, 64, overrides=("roles.decode.args.page-size=32", "slurm.account=other"))
    assert diff_text(replace(diff_plans(old, new), old="a", new="b")) == (
        "--- a\n+++ b\n\n"
        "slurm\n  - account research\n  + account other\n\n"
        "commands\n"
        "  decode-[0-23].0, decode-[0-23].1 (48)\n"
        "    - --page-size 16\n"
        "    + --page-size 32\n"
    )


def test_colour_is_only_paint() -> None:
    diff = diff_plans(PLAN, plan_of(EXAMPLES[-1]))
    painted = diff_text(diff, color=True)
    assert "\x1b[31m- " in painted
    assert "\x1b[32m+ " in painted
    plain = painted
    for code in ("0", "1", "31", "32"):
        plain = plain.replace(f"\x1b[{code}m", "")
    assert plain == diff_text(diff)


# The last two follow from a worker's list of processes.
NO_DIFFERENCE = {"version", "source", "workers.nodes", "workers.processes.node_rank"}


def mutants(value: Any, hint: Any) -> Iterator[tuple[str, Any]]:
    """The value with one thing changed, for each thing in it, and the path to that: of a list the first item stands for all."""
    origin, args = get_origin(hint), [arg for arg in get_args(hint) if arg not in (Ellipsis, type(None))]
    if value is None:
        made = {str: "x", int: 7, float: 1.5}.get(args[0])
        yield from [("", made)] if made else []
    elif is_dataclass(value) and not isinstance(value, type):
        hints = get_type_hints(type(value))
        for field in fields(value):
            for path, new in mutants(getattr(value, field.name), hints[field.name]):
                yield f".{field.name}{path}", replace(value, **{field.name: new})
    elif isinstance(value, tuple):
        if value:
            yield "", value[1:] if is_dataclass(value[0]) else (*value, value[0])
            yield from ((path, (new, *value[1:])) for path, new in mutants(value[0], args[0]))
        elif args[0] in (str, int) or get_origin(args[0]) is tuple:
            yield "", {str: ("x",), int: (7,)}.get(args[0], (("x",),))
    elif isinstance(value, Mapping):
        of_text = get_origin(args[1]) is not Mapping and args[1] is not int
        yield "", value | {"new": "1" if of_text else 1 if args[1] is int else {"a": "b"}}
        for key in list(value)[:1]:
            yield from ((path, value | {key: new}) for path, new in mutants(value[key], args[1]))
    elif origin is Literal:
        yield "", next(other for other in args if other != value)
    elif isinstance(value, bool):
        yield "", not value
    else:
        assert isinstance(value, str | int | float), (origin, value)
        yield "", value + "x" if isinstance(value, str) else value + 1


@pytest.mark.parametrize("example", EXAMPLES, ids=example_id)
def test_every_field_is_a_difference(example: Path) -> None:
    plan = replace(plan_of(example), warnings=())
    unseen = {path.lstrip(".") for path, other in mutants(plan, Plan) if diff_plans(plan, other).equal}
    assert unseen <= NO_DIFFERENCE
    assert {"version", "source"} <= unseen
