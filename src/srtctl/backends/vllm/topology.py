"""How one vLLM worker lies on its nodes: which DP ranks each node runs, and who takes requests."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from srtctl.backends.base import Layout
from srtctl.backends.sizes import size
from srtctl.diagnostics import Diagnostic
from srtctl.recipe.arguments import Arguments

TENSOR = ("tensor-parallel-size",)
PIPELINE = ("pipeline-parallel-size",)
CONTEXT = ("prefill-context-parallel-size",)
DATA = ("data-parallel-size",)


@dataclass(frozen=True, slots=True)
class Parallelism:
    """Sizes of one vLLM worker. A replica is TP x PP x PCP GPUs; each DP rank is one replica."""

    tp: int
    pp: int
    pcp: int
    dp: int

    @property
    def replica(self) -> int:
        """GPUs of one DP rank."""
        return self.tp * self.pp * self.pcp

    @property
    def gpus(self) -> int:
        return self.replica * self.dp


class Spread(StrEnum):
    """one: everything on one node. hybrid: DP over nodes, whole replicas on each, and each takes requests for its own
    ranks. central: the same, but only the leader takes requests. replica: one replica over all nodes. rank: a process
    for each DP rank, which takes the requests of that rank."""

    one = "one"
    hybrid = "hybrid"
    central = "central"
    replica = "replica"
    rank = "rank"


@dataclass(frozen=True, slots=True)
class Share:
    """What one process of a worker runs: its global DP ranks, those whose requests it takes, and whether it is headless
    (no server, nothing that answers)."""

    ranks: tuple[int, ...]
    serves: tuple[int, ...]
    headless: bool


def parallelism(args: Arguments) -> tuple[Parallelism, list[Diagnostic]]:
    """The sizes that `args` ask for, with a finding for each bad one."""
    found = [size(args, names) for names in (TENSOR, PIPELINE, CONTEXT, DATA)]
    return Parallelism(*(value for value, _ in found)), [problem for _, problems in found for problem in problems]


def spread_of(sizes: Parallelism, layout: Layout, *, one_endpoint: bool, process_a_rank: bool) -> Spread:
    """How the worker is spread; `one_endpoint`: clients talk to its leader alone. Sizes and GPUs must agree."""
    if process_a_rank and sizes.dp > 1:
        return Spread.rank
    if layout.nnodes == 1:
        return Spread.one
    if sizes.replica > len(layout.gpus[0]):
        return Spread.replica
    return Spread.central if one_endpoint else Spread.hybrid


def shares(sizes: Parallelism, nnodes: int, spread: Spread) -> tuple[Share, ...]:
    """What each process runs, in order of nodes. DP12 on 3 nodes starts at ranks 0, 4 and 8."""
    everything = tuple(range(sizes.dp))
    if spread is Spread.rank:
        return tuple(Share((rank,), (rank,), False) for rank in everything)
    if spread is Spread.replica:
        # The engine core, with its scheduler and its KV publisher, is the leader's; followers only execute.
        return (Share(everything, everything, False), *(Share((), (), True) for _ in range(nnodes - 1)))
    local = sizes.dp // nnodes
    ranks = [everything[node * local : (node + 1) * local] for node in range(nnodes)]
    if spread is Spread.central:
        return tuple(Share(mine, () if node else everything, node > 0) for node, mine in enumerate(ranks))
    return tuple(Share(mine, mine, False) for mine in ranks)
