"""Which DP rank lives on which node of an SGLang engine. Pure arithmetic; source: SGLang's rank layout."""

from __future__ import annotations

from dataclasses import dataclass


class TopologyError(ValueError):
    """Sizes that the engine refuses."""


@dataclass(frozen=True)
class Topology:
    """The sizes that all processes of an engine must agree on."""

    nnodes: int = 1
    tp: int = 1
    dp: int = 1
    pp: int = 1
    dp_attention: bool = False

    def check(self) -> None:
        """Raises TopologyError with the text of the engine's own assertion where it has one."""
        for name, value in (("nnodes", self.nnodes), ("tp_size", self.tp), ("dp_size", self.dp), ("pp_size", self.pp)):
            if value < 1:
                raise TopologyError(f"{name} must be at least 1, not {value}")
        if (self.tp * self.pp) % self.nnodes:
            raise TopologyError(
                "tp_size must be divisible by number of nodes "
                f"(tp_size={self.tp}, pp_size={self.pp}, nnodes={self.nnodes})"
            )
        if self.dp > 1 and self.nnodes > 1 and not self.dp_attention:
            raise TopologyError("multi-node data parallel is not supported unless dp attention!")
        if self.dp_attention and self.tp % self.dp:
            raise TopologyError(
                f"tp_size ({self.tp}) must be divisible by dp_size ({self.dp}) with --enable-dp-attention"
            )
        if self.dp_attention and self.tp % self.stage_nodes:
            raise TopologyError(
                f"tp_size ({self.tp}) must be divisible by the nodes of a pipeline stage ({self.stage_nodes})"
            )

    @property
    def stage_nodes(self) -> int:
        """How many nodes one pipeline stage spans."""
        return max(self.nnodes // self.pp, 1)

    @property
    def independent_groups(self) -> int:
        """How many tensor-parallel groups the server starts, each of which makes a rendezvous of its own."""
        return 1 if self.dp_attention else self.dp

    def ranks_on(self, node_rank: int) -> tuple[int, ...]:
        """The global DP ranks whose first tensor-parallel rank, and so KV publisher, lives on that node."""
        if not self.dp_attention:
            return tuple(range(self.dp)) if node_rank == 0 else ()
        if node_rank >= self.stage_nodes:
            return ()
        local = self.tp // self.stage_nodes
        first = node_rank * local
        width = self.tp // self.dp
        return tuple(rank for rank in range(self.dp) if first <= rank * width < first + local)

    def nodes_of(self, dp_rank: int) -> tuple[int, ...]:
        """All nodes that compute for a DP rank, in all pipeline stages; the one on which it lives comes first."""
        if not self.dp_attention:
            return tuple(range(self.nnodes))
        local = self.tp // self.stage_nodes
        width = self.tp // self.dp
        first, last = dp_rank * width // local, ((dp_rank + 1) * width - 1) // local
        stages = range(0, self.nnodes, self.stage_nodes)
        return tuple(stage + node for stage in stages for node in range(first, last + 1))

    def node_of(self, dp_rank: int) -> int:
        """The node on which a DP rank lives."""
        return next(node for node in range(self.nnodes) if dp_rank in self.ranks_on(node))
