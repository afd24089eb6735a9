"""Which DP rank lives on which node of a vLLM engine. Pure arithmetic; source: vLLM's data-parallel deployment page."""

from __future__ import annotations

from dataclasses import dataclass


class TopologyError(ValueError):
    """Sizes that the engine refuses."""


@dataclass(frozen=True)
class Topology:
    """The sizes that all processes of an engine must agree on.

    `replica_nodes`: nodes that one replica spans (`--nnodes`). `dp_local`: DP ranks on each node, where DP is spread.
    """

    tp: int = 1
    pp: int = 1
    pcp: int = 1
    dp: int = 1
    dp_local: int = 1
    replica_nodes: int = 1

    def check(self) -> None:
        """Raises TopologyError, with the text of the engine's own error where it has one."""
        for name, value in (
            ("tensor_parallel_size", self.tp),
            ("pipeline_parallel_size", self.pp),
            ("prefill_context_parallel_size", self.pcp),
            ("data_parallel_size", self.dp),
            ("data_parallel_size_local", self.dp_local),
            ("nnodes", self.replica_nodes),
        ):
            if value < 1:
                raise TopologyError(f"{name} must be at least 1, not {value}")
        if self.dp_local > self.dp:
            raise TopologyError(f"data_parallel_size_local ({self.dp_local}) must be <= data_parallel_size ({self.dp})")
        if self.dp % self.dp_local:
            raise TopologyError(f"data_parallel_size ({self.dp}) is no multiple of {self.dp_local} ranks a node")
        if self.world_size % self.replica_nodes:
            raise TopologyError(f"world size {self.world_size} is not divisible by nnodes {self.replica_nodes}")
        if self.replica_nodes > 1 and self.dp > 1:
            raise TopologyError("a replica over several nodes and data parallelism together are not simulated")

    @property
    def world_size(self) -> int:
        """GPUs of one replica."""
        return self.tp * self.pp * self.pcp

    @property
    def nnodes(self) -> int:
        """How many processes the engine has, one a node."""
        return self.replica_nodes if self.replica_nodes > 1 else self.dp // self.dp_local

    def ranks_on(self, node_rank: int) -> tuple[int, ...]:
        """The global DP ranks whose engine core, with its scheduler and KV publisher, runs on that node."""
        if self.replica_nodes > 1:
            return (0,) if node_rank == 0 else ()
        return tuple(range(node_rank * self.dp_local, (node_rank + 1) * self.dp_local))

    def nodes_of(self, dp_rank: int) -> tuple[int, ...]:
        """All nodes that compute for a DP rank; the one on which its engine core runs comes first."""
        return tuple(range(self.replica_nodes)) if self.replica_nodes > 1 else (dp_rank // self.dp_local,)
