"""Which node owns which DP rank, and so which KV publisher."""

from __future__ import annotations

from dataclasses import dataclass

from srtctl.backends.sizes import DATA, PIPELINE, TENSOR, size
from srtctl.diagnostics import Diagnostic
from srtctl.recipe.arguments import Arguments


@dataclass(frozen=True, slots=True)
class Parallelism:
    """Sizes of one SGLang server: tensor, data and pipeline parallel; attention DP shares the tensor-parallel GPUs."""

    tp: int
    dp: int
    pp: int
    attention_dp: bool

    @property
    def gpus(self) -> int:
        """GPUs that one server needs: attention DP divides TP, ordinary DP multiplies it."""
        return self.tp * self.pp * (1 if self.attention_dp else self.dp)

    @property
    def ordinary_dp(self) -> bool:
        return self.dp > 1 and not self.attention_dp


def parallelism(args: Arguments) -> tuple[Parallelism, list[Diagnostic]]:
    """The sizes that `args` ask for, with a finding for each bad or contradicting one."""
    (tp, bad_tp), (dp, bad_dp), (pp, bad_pp) = size(args, TENSOR), size(args, DATA), size(args, PIPELINE)
    return Parallelism(tp, dp, pp, args.is_on("enable-dp-attention")), bad_tp + bad_dp + bad_pp


def publisher_ranks(sizes: Parallelism, nnodes: int) -> tuple[tuple[int, ...], ...]:
    """Global DP ranks whose KV publisher lives on each node, in node-rank order.

    Without attention DP only node 0 publishes. With it, node k of the first pipeline stage owns rank r iff the rank's
    first TP rank, r * tp / dp, lies in [k * local, (k + 1) * local) with local = tp / nodes in a stage
    (public: srt-slurm #473, dynamo #14908). The sizes must already divide.
    """
    if not sizes.attention_dp:
        return (tuple(range(sizes.dp)), *((),) * (nnodes - 1))
    stage_nodes = max(nnodes // sizes.pp, 1)
    local, step = sizes.tp // stage_nodes, sizes.tp // sizes.dp
    return tuple(
        tuple(r for r in range(sizes.dp) if node < stage_nodes and node * local <= r * step < (node + 1) * local)
        for node in range(nnodes)
    )
