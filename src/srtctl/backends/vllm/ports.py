"""The ports of a vLLM process."""

from __future__ import annotations

from collections.abc import Iterator

from srtctl.backends.base import PortNeed
from srtctl.backends.kv_events import discovered, port_need
from srtctl.backends.launch import Launch
from srtctl.backends.rules import need
from srtctl.backends.vllm.connectors import transfer_of
from srtctl.backends.vllm.topology import Parallelism, Share, Spread
from srtctl.recipe.model import Recipe

#: User flags that hold one port, and the purpose under which it is claimed.
PORT_FLAGS = {"port": "http", "grpc-port": "grpc", "data-parallel-rpc-port": "dp_rpc"}


def port_needs(
    recipe: Recipe, role: str, sizes: Parallelism, spread: Spread, launch: Launch, share: Share, *, leader: bool
) -> Iterator[PortNeed]:
    """What one process binds; `leader`: it is the first."""
    args = recipe.arguments[role]
    fixed = {purpose: args.get(flag) for flag, purpose in PORT_FLAGS.items()}
    if not share.headless:
        if launch is not Launch.wrapper:
            yield need("http", fixed["http"])
        if launch is Launch.native:
            yield need("grpc", fixed["grpc"])
        if launch is not Launch.server:
            yield PortNeed("system")
    if leader and spread in (Spread.hybrid, Spread.central, Spread.rank):
        yield need("dp_rpc", fixed["dp_rpc"])
    elif leader and fixed["dp_rpc"]:
        # Inside one node nobody binds it, so that two workers there may well name the same.
        yield PortNeed("dp_rpc")
    if leader and spread is Spread.replica:
        yield PortNeed("master")
    if recipe.roles[role].kv_events is not None and share.ranks and not discovered(args):
        yield port_need(args, sizes.dp, common=spread in (Spread.hybrid, Spread.central, Spread.rank))
    transfer, _ = transfer_of(recipe, role)
    # Versions differ in what a rank adds to the base: the DP rank, twice that, or DP rank times TP plus the TP rank.
    handshakes = sizes.dp * max(sizes.tp, 2)
    if "NixlConnector" in transfer.classes:
        yield PortNeed("nixl", handshakes, common=True)
    if "MooncakeConnector" in transfer.classes and role == "prefill":
        yield PortNeed("bootstrap", handshakes, common=True)
