"""The nodes that compute for a DP rank, as its engine sees them: this one, and through the group the others."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from srtctl.sim.channel import Message
from srtctl.sim.group import Group
from srtctl.sim.rank import Rank, node_handler


class Nodes:
    """Has every node of a rank do its part, stage by stage. Each call raises GroupError when a node of it is gone."""

    def __init__(self, here: int, ranks: Mapping[int, Rank], group: Group, log: logging.Logger) -> None:
        """`here` is this node's rank in the group, `ranks` are those that live here."""
        self._here = here
        self._handle = node_handler(ranks, log)
        self._group = group

    def prefill(self, nodes: Sequence[int], dp_rank: int, rid: str, tokens: Sequence[int]) -> int:
        """Run a prompt through `nodes`, of which the first has the rank's cache; returns how many tokens were cached."""
        home, *others = nodes
        answer = self._ask(home, {"do": "prefill", "dp_rank": dp_rank, "tokens": list(tokens)})
        for node in others:
            self._ask(node, {"do": "forward", "dp_rank": dp_rank, "rid": rid})
        return int(answer["cached_tokens"])

    def flush(self, node: int, dp_rank: int) -> None:
        """Empty the cache of the rank, which lives on `node`."""
        self._ask(node, {"do": "flush", "dp_rank": dp_rank})

    def _ask(self, node: int, request: Message) -> Message:
        return self._handle(request) if node == self._here else self._group.call(node, request)
