"""The ownership table of the SGLang rules: which node publishes which DP rank."""

from __future__ import annotations

import pytest

from srtctl.backends.base import Layout
from srtctl.backends.sglang.rules import check_layout
from srtctl.backends.sglang.topology import Parallelism, parallelism, publisher_ranks
from srtctl.recipe.arguments import Arguments

OWNERSHIP = [
    # tp, dp, pp, attention DP, nodes, ranks per node
    (2, 2, 1, True, 2, [[0], [1]]),
    (8, 4, 1, True, 2, [[0, 1], [2, 3]]),
    (8, 2, 1, True, 4, [[0], [], [1], []]),
    (8, 2, 2, True, 4, [[0], [1], [], []]),
    (16, 16, 1, True, 4, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]]),
    (8, 1, 1, False, 2, [[0], []]),
    (4, 1, 2, False, 2, [[0], []]),
    (1, 2, 1, False, 1, [[0, 1]]),
]


@pytest.mark.parametrize(("tp", "dp", "pp", "attention", "nodes", "expected"), OWNERSHIP)
def test_publisher_ranks(tp: int, dp: int, pp: int, attention: bool, nodes: int, expected: list[list[int]]) -> None:
    owned = publisher_ranks(Parallelism(tp, dp, pp, attention), nodes)
    assert [list(r) for r in owned] == expected
    assert sorted(r for ranks in owned for r in ranks) == list(range(dp))


SPELLINGS = [
    {"tensor-parallel-size": 8, "data-parallel-size": 2, "pipeline-parallel-size": 2},
    {"tp-size": 8, "dp-size": 2, "pp-size": 2},
    {"tp": 8, "dp": 2, "pp": 2},
    {"tensor_parallel_size": 8, "data_parallel_size": 2, "pipeline_parallel_size": 2},
    {"tp_size": "8", "dp_size": "2", "pp_size": "2"},
    {"tp": 8, "tp_size": 8, "dp": 2, "pp": 2},
]


@pytest.mark.parametrize("args", SPELLINGS)
def test_every_spelling_of_a_size(args: dict[str, object]) -> None:
    assert parallelism(Arguments("roles.agg.args", args)) == (Parallelism(8, 2, 2, False), [])


BAD_SIZES = [
    ({"tp": 8, "tp-size": 4}, "args/size-conflict", "roles.agg.args.tp-size"),
    ({"tp": 0}, "args/size", "roles.agg.args.tp"),
    ({"dp": True}, "args/size", "roles.agg.args.dp"),
    ({"pp": "two"}, "args/size", "roles.agg.args.pp"),
]


@pytest.mark.parametrize(("args", "code", "path"), BAD_SIZES)
def test_bad_sizes(args: dict[str, object], code: str, path: str) -> None:
    _, problems = parallelism(Arguments("roles.agg.args", args))
    assert [(p.code, p.path) for p in problems] == [(code, path)]
    assert problems[0].hint


@pytest.mark.parametrize(("dp", "attention", "gpus"), [(2, True, 4), (2, False, 8), (1, False, 4)])
def test_gpus_of_one_server(dp: int, attention: bool, gpus: int) -> None:
    assert Parallelism(4, dp, 1, attention).gpus == gpus


LAYOUTS = [
    # tp, pp, dp, attention DP, GPUs per node, code (empty: fine)
    (8, 1, 1, False, (4, 4), ""),
    (12, 1, 1, False, (8, 4), "sglang/uneven-nodes"),
    (2, 2, 1, False, (2, 2), ""),
    (1, 3, 1, False, (1, 1), "sglang/pipeline-nodes"),
    (2, 1, 1, False, (1, 1, 1), "sglang/tp-nodes"),
    (1, 1, 2, False, (1, 1), "sglang/ordinary-dp-nodes"),
]


@pytest.mark.parametrize(("tp", "pp", "dp", "attention", "gpus", "code"), LAYOUTS)
def test_what_a_layout_rules_out(tp: int, pp: int, dp: int, attention: bool, gpus: tuple[int, ...], code: str) -> None:
    layout = Layout(tuple(tuple(range(n)) for n in gpus))
    found = list(check_layout("agg", Arguments("roles.agg.args", {}), Parallelism(tp, dp, pp, attention), layout))
    assert [d.code for d in found] == ([code] if code else [])
    assert all(d.hint and d.path for d in found)
