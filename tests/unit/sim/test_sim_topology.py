"""Who owns which DP rank: the table of the design's SGLang rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtctl.sim.sglang.config import KvEvents
from srtctl.sim.sglang.topology import Topology, TopologyError

CASES = [
    (Topology(nnodes=2, tp=2, dp=2, dp_attention=True), {0: [0], 1: [1]}),
    (Topology(nnodes=2, tp=8, dp=4, dp_attention=True), {0: [0, 1], 1: [2, 3]}),
    (Topology(nnodes=4, tp=8, dp=2, dp_attention=True), {0: [0], 2: [1]}),
    (Topology(nnodes=4, tp=8, dp=2, pp=2, dp_attention=True), {0: [0], 1: [1]}),
    (
        Topology(nnodes=4, tp=16, dp=16, dp_attention=True),
        {0: [0, 1, 2, 3], 1: [4, 5, 6, 7], 2: [8, 9, 10, 11], 3: [12, 13, 14, 15]},
    ),
    (Topology(nnodes=2, tp=8), {0: [0]}),
    (Topology(nnodes=2, tp=4, pp=2), {0: [0]}),
    (Topology(nnodes=1, tp=1, dp=2), {0: [0, 1]}),
    (Topology(nnodes=1, tp=8, dp=4, dp_attention=True), {0: [0, 1, 2, 3]}),
    (Topology(nnodes=2, tp=4, dp=2, pp=4, dp_attention=True), {0: [0, 1]}),
]


@pytest.mark.parametrize(("topology", "owners"), CASES, ids=str)
def test_ranks_and_publisher_ports_of_each_node(topology: Topology, owners: dict[int, list[int]]) -> None:
    topology.check()
    found = {node: list(topology.ranks_on(node)) for node in range(topology.nnodes)}
    assert {node: ranks for node, ranks in found.items() if ranks} == owners
    assert {topology.node_of(rank): rank for rank in range(topology.dp)}.keys() == owners.keys()
    events = KvEvents("kv-events", "*", 5200)
    for node, ranks in owners.items():
        assert [events.endpoint(rank) for rank in topology.ranks_on(node)] == [f"tcp://*:{5200 + r}" for r in ranks]
        assert all(topology.node_of(rank) == node for rank in ranks)


@pytest.mark.parametrize(
    ("topology", "nodes"),
    [
        (Topology(dp=2), {0: (0,), 1: (0,)}),
        (Topology(nnodes=2, tp=8), {0: (0, 1)}),
        (Topology(nnodes=2, tp=4, pp=2), {0: (0, 1)}),
        (Topology(nnodes=2, tp=2, dp=2, dp_attention=True), {0: (0,), 1: (1,)}),
        (Topology(nnodes=4, tp=8, dp=2, dp_attention=True), {0: (0, 1), 1: (2, 3)}),
        (Topology(nnodes=4, tp=8, dp=2, pp=2, dp_attention=True), {0: (0, 2), 1: (1, 3)}),
        (Topology(nnodes=2, tp=4, dp=2, pp=4, dp_attention=True), {0: (0, 1), 1: (0, 1)}),
    ],
    ids=str,
)
def test_nodes_that_compute_for_a_rank(topology: Topology, nodes: dict[int, tuple[int, ...]]) -> None:
    topology.check()
    assert {rank: topology.nodes_of(rank) for rank in range(topology.dp)} == nodes


@given(st.integers(1, 8), st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.booleans())
def test_every_rank_lives_on_exactly_one_node(nnodes: int, width: int, dp: int, pp: int, dp_attention: bool) -> None:
    tp = width * dp * nnodes * max(nnodes // pp, 1)
    topology = Topology(nnodes=nnodes, tp=tp, dp=dp, pp=pp, dp_attention=dp_attention)
    if dp_attention or dp == 1 or nnodes == 1:
        topology.check()
        owned = [rank for node in range(nnodes) for rank in topology.ranks_on(node)]
        assert owned == list(range(dp))
        assert [topology.nodes_of(rank)[0] for rank in owned] == [topology.node_of(rank) for rank in owned]


@pytest.mark.parametrize(
    ("topology", "message"),
    [
        (Topology(nnodes=2, tp=3), "tp_size must be divisible by number of nodes"),
        (Topology(nnodes=2, tp=2, dp=2), "multi-node data parallel is not supported unless dp attention!"),
        (Topology(tp=4, dp=3, dp_attention=True), "tp_size (4) must be divisible by dp_size (3)"),
        (Topology(nnodes=5, tp=5, dp=5, pp=2, dp_attention=True), "the nodes of a pipeline stage (2)"),
        (Topology(tp=0), "tp_size must be at least 1, not 0"),
    ],
    ids=str,
)
def test_sizes_that_the_engine_refuses(topology: Topology, message: str) -> None:
    with pytest.raises(TopologyError) as error:
        topology.check()
    assert message in str(error.value)
