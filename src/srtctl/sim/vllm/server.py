"""One server process from the first bound port to its end."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import queue
import threading
import time
from collections.abc import Mapping
from typing import NoReturn

from srtctl.sim.faults import WRONG_PORT_OFFSET, Faults
from srtctl.sim.group import form
from srtctl.sim.http_server import HttpServer, Route, json_answer, text_answer
from srtctl.sim.kv_cache import PrefixCache
from srtctl.sim.model import read_model
from srtctl.sim.openengine.server import OpenEngineServer
from srtctl.sim.process import FaultExitError, first_end, group_timeout, later
from srtctl.sim.rank import Rank, node_handler, open_each, open_publisher
from srtctl.sim.vllm.config import DEFAULT_GROUP_TIMEOUT, Config
from srtctl.sim.vllm.engine import Engine
from srtctl.sim.vllm.grpc_server import open_server
from srtctl.sim.vllm.info import VERSION, kv_event_sources, model_info, server_info
from srtctl.sim.vllm.nixl import SideChannel
from srtctl.sim.vllm.openengine import OpenEngineAdapter

log = logging.getLogger("vllm")


def serve(config: Config, faults: Faults) -> NoReturn:
    """Form the group, load, listen (unless headless), serve until something ends it.

    Raises OSError when an address is taken, ModelError, GroupError (MemberLostError when a member goes away), or
    FaultExitError. Everything that was opened is closed.
    """
    log.info("Simulated vLLM %s: %s", VERSION, config)
    model = read_model(config.model)
    ends: queue.SimpleQueue[Exception] = queue.SimpleQueue()
    ranks: dict[int, Rank] = {}
    ready = threading.Event()
    with contextlib.ExitStack() as stack:
        log.info(
            "Waiting for the other nodes: world size %d on %d nodes", config.topology.world_size, config.topology.nnodes
        )
        group = form(config.membership, group_timeout(DEFAULT_GROUP_TIMEOUT), node_handler(ranks, log), ends.put)
        stack.callback(group.close)
        log.info("Starting to load model %s...", config.model)
        time.sleep(faults.start_delay)
        ranks |= open_each(config.local_ranks, lambda dp_rank: _rank(config, faults, dp_rank))
        for rank in ranks.values():
            stack.callback(rank.close)
        channels = _side_channels(config, stack)
        group.barrier()
        log.info("Model loaded. DP ranks on this node: %s", list(ranks))
        if config.headless:
            log.info("Headless: no server on this node")
        else:
            engine = Engine(config, model, ranks, faults, group, channels)
            _listen(config, faults, engine, ranks, ready, stack)
            if config.openengine:
                where = config.openengine
                adapter = OpenEngineAdapter(config, where, engine, ranks, channels)
                stack.enter_context(OpenEngineServer(where.host, where.port, adapter, faults, ready.is_set))
                log.info("OpenEngine server listens on %s:%d", where.host, where.port)
        if not faults.never_ready:
            ready.set()
            log.info("Application startup complete.")
        if faults.exit_after:
            stack.callback(later(faults.exit_after.seconds, ends, FaultExitError(faults.exit_after.code)).cancel)
        raise first_end(ends)


def _rank(config: Config, faults: Faults, dp_rank: int) -> Rank:
    block_size = faults.block_size or config.block_size
    cache = PrefixCache(block_size, config.kv_blocks * config.block_size if config.prefix_cache else 0)
    events = config.kv_events
    if events is None:
        return Rank(cache, None)
    if faults.wrong_port and events.port:
        events = dataclasses.replace(events, port=events.port + WRONG_PORT_OFFSET)
    return Rank(cache, open_publisher(events.endpoint(dp_rank), events.topic, dp_rank, faults))


def _side_channels(config: Config, stack: contextlib.ExitStack) -> dict[int, SideChannel]:
    channels = {}
    for dp_rank in config.local_ranks if config.nixl else ():
        assert config.nixl is not None
        channel = SideChannel(config.nixl.address_of(dp_rank, config.topology.tp), config.block_size)
        stack.callback(channel.close)
        log.info("NIXL side channel of DP rank %d listens on %s", dp_rank, channel.address)
        channels[dp_rank] = channel
    return channels


def _listen(
    config: Config,
    faults: Faults,
    engine: Engine,
    ranks: Mapping[int, Rank],
    ready: threading.Event,
    stack: contextlib.ExitStack,
) -> None:
    stack.callback(HttpServer(config.host, config.port, _routes(config, engine), ready.is_set).close)
    log.info("HTTP server listens on %s:%d", config.host, config.port)
    if config.grpc_port is None:
        return
    about = server_info(config, engine.context_length, faults)
    sources = kv_event_sources(config, ranks, faults)
    stack.callback(open_server(config, engine, about, model_info(config), sources, ready.is_set).close)
    log.info("gRPC server listens on %s:%d", config.host, config.grpc_port)


def _routes(config: Config, engine: Engine) -> dict[str, Route]:
    cards = [
        {
            "id": name,
            "object": "model",
            "owned_by": "vllm",
            "root": config.model,
            "max_model_len": engine.context_length,
        }
        for name in config.served_model_names
    ]
    return {
        "/health": text_answer,
        "/version": lambda: json_answer({"version": VERSION}),
        "/v1/models": lambda: json_answer({"object": "list", "data": cards}),
    }
