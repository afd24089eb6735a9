"""One server process from the first bound port to its end."""

from __future__ import annotations

import contextlib
import logging
import queue
import socket
import threading
import time
from collections.abc import Iterator
from typing import NoReturn

from srtctl.sim.faults import Faults
from srtctl.sim.group import form
from srtctl.sim.http_server import HttpServer
from srtctl.sim.model import read_model
from srtctl.sim.openengine.server import OpenEngineServer
from srtctl.sim.process import FaultExitError, first_end, group_timeout, later
from srtctl.sim.rank import Rank, node_handler
from srtctl.sim.sglang.config import Config
from srtctl.sim.sglang.disaggregation import Role, open_role
from srtctl.sim.sglang.engine import Engine
from srtctl.sim.sglang.grpc_server import open_server
from srtctl.sim.sglang.http_server import routes
from srtctl.sim.sglang.info import VERSION, model_info, server_info
from srtctl.sim.sglang.openengine import OpenEngineAdapter
from srtctl.sim.sglang.ranks import open_ranks

log = logging.getLogger("sglang")


def serve(config: Config, faults: Faults) -> NoReturn:
    """Form the group, load, listen, serve until something ends it.

    Raises OSError when an address is taken, ModelError, GroupError (MemberLostError when a member goes away), or
    FaultExitError. Everything that was opened is closed.
    """
    log.info("Simulated SGLang %s: server_args=%s", VERSION, config)
    model = read_model(config.model_path)
    ends: queue.SimpleQueue[Exception] = queue.SimpleQueue()
    ranks: dict[int, Rank] = {}
    loaded, ready = threading.Event(), threading.Event()
    with contextlib.ExitStack() as stack:
        stack.enter_context(_nccl_ports(config))
        role = open_role(config, faults, loaded.is_set) if config.leader else Role()
        stack.callback(role.close)
        log.info("Init torch distributed begin.")
        group = form(config.membership, group_timeout(config.dist_timeout), node_handler(ranks, log), ends.put)
        stack.callback(group.close)
        log.info("Init torch distributed ends. nnodes=%d", config.topology.nnodes)
        log.info("Load weight begin.")
        time.sleep(faults.start_delay)
        ranks |= open_ranks(config, faults)
        for rank in ranks.values():
            stack.callback(rank.close)
        group.barrier()
        loaded.set()
        log.info("Load weight end. DP ranks on this node: %s", list(ranks))
        engine = Engine(config, model, ranks, faults, group, role) if config.leader else None
        info, about = server_info(config, model, faults), model_info(model)
        table = routes(config, info, about, engine.flush if engine else None)
        stack.callback(HttpServer(config.host, config.port, table, ready.is_set).close)
        log.info("HTTP server listens on %s:%d", config.host, config.port)
        if config.grpc_port is not None:
            stack.callback(open_server(config, engine, info, about, ready.is_set).close)
            log.info("gRPC server listens on %s:%d", config.host, config.grpc_port)
        if config.openengine and engine:
            where, adapter = config.openengine, OpenEngineAdapter(config, config.openengine, engine, role)
            stack.enter_context(OpenEngineServer(where.host, where.port, adapter, faults, ready.is_set))
            log.info("OpenEngine sibling server started on %s:%d", where.host, where.port)
        if not faults.never_ready:
            ready.set()
            log.info("The server is fired up and ready to roll!")
        if faults.exit_after:
            stack.callback(later(faults.exit_after.seconds, ends, FaultExitError(faults.exit_after.code)).cancel)
        raise first_end(ends)


@contextlib.contextmanager
def _nccl_ports(config: Config) -> Iterator[None]:
    """Hold `--nccl-port`, once for each tensor-parallel group: with ordinary DP a fixed port fails, as in SGLang."""
    with contextlib.ExitStack() as stack:
        for _ in range(config.topology.independent_groups if config.nccl_port else 0):
            try:
                stack.enter_context(socket.create_server(("127.0.0.1", config.nccl_port or 0)))
            except OSError as error:
                raise OSError(
                    "The server socket has failed to listen on any local network address. "
                    f"port: {config.nccl_port} (--nccl-port), message: {error.strerror}"
                ) from None
        yield
