"""Where a KV publisher really is: on the planned port, or where its engine says, if the plan leaves the port to it."""

from __future__ import annotations

from srtctl.checks import vllm_info
from srtctl.checks.deployment import Publisher
from srtctl.checks.net import NetError
from srtctl.checks.survey import NodeView


class NotPublishedError(Exception):
    """The engine does not say where the rank publishes; the text says what it says instead."""


def port_of(publisher: Publisher, dp_rank: int, host: str, grpc_port: int | None, timeout: float) -> int:
    """The port of a rank's publisher; that of a *discovered* one (planned port 0) is the engine's own word.

    Raises NotPublishedError, or NetError where the engine cannot be asked.
    """
    if not publisher.discovered:
        return publisher.port
    if grpc_port is None:
        raise NetError(f"{publisher.process} has no native gRPC port, so nothing tells where it publishes")
    sources = vllm_info.kv_sources(host, grpc_port, timeout)
    mine = [source for source in sources if source.dp_rank == dp_rank]
    if len(mine) != 1:
        ranks = [source.dp_rank for source in sources]
        count = f"{len(mine)} addresses" if mine else "no address"
        raise NotPublishedError(f"{publisher.process} names {count} for rank {dp_rank}; it names ranks {ranks}")
    port = mine[0].endpoint.rpartition(":")[2]
    if mine[0].transport != "zmq" or not port.isdecimal() or not 0 < int(port) < 65536:
        said = f"{mine[0].transport} {mine[0].endpoint!r}"
        raise NotPublishedError(f"{publisher.process} names no address for rank {dp_rank} that anybody can use: {said}")
    return int(port)


def stranger(publisher: Publisher, port: int, view: NodeView | None) -> str:
    """Who has that port of the publisher's node in its place, in words; empty if the publisher's own process has it.

    A socket whose owner the node could not see counts as its own on a planned port, which the job had claimed.
    """
    if view is None:
        return ""
    owner = view.listening.get(port, "")
    if owner == publisher.process or (not owner and not publisher.discovered):
        return ""
    return owner or "no process of this run"
