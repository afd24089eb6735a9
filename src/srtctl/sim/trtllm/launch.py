"""`python3 -m tensorrt_llm.commands.serve`: rank 0 of the simulated TensorRT-LLM server.

Exit codes: 2 bad usage; 1 what the engine refuses, or a failure, its reason the last line on stderr; 0 after SIGTERM, once
its streams have ended; and whatever a fault asks for.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import NoReturn

from srtctl.sim.errors import GroupError
from srtctl.sim.faults import VARIABLE, FaultError, Faults, parse_faults
from srtctl.sim.life import LastWords, live
from srtctl.sim.model import read_model
from srtctl.sim.process import FaultExitError, first_end, later, log_to_stderr, say
from srtctl.sim.trtllm.config import Config, ConfigError, read_config
from srtctl.sim.trtllm.world import World, read_world

log = logging.getLogger("trtllm")

LAST_WORDS = LastWords(
    logger="trtllm",
    stopped="Shutting down.",
    member_lost="RuntimeError: MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD",
    group="RuntimeError",
)
FORMAT = "[%(asctime)s] [TRT-LLM] [%(levelname).1s] %(message)s"


def main(argv: Sequence[str] | None = None) -> int:
    """Run a server until it is stopped or fails; returns the exit code."""
    try:
        config = read_config(sys.argv[1:] if argv is None else argv)
        faults = parse_faults(os.environ.get(VARIABLE, ""), 0)
        world = read_world(os.environ)
    except FaultError as error:
        return say(str(error), 2)
    except (ConfigError, GroupError) as error:
        return say(f"ValueError: {error}")
    log_to_stderr(config.log_level, FORMAT)
    return live(partial(_serve, config, world, faults), faults, LAST_WORDS)


def _serve(config: Config, world: World, faults: Faults) -> NoReturn:
    """Meet the other ranks, load, listen, serve. Everything that was opened is closed."""
    from srtctl.sim.openengine.server import OpenEngineServer  # bad usage must not cost the import of grpc
    from srtctl.sim.trtllm.engine import Engine, forward
    from srtctl.sim.trtllm.transceiver import Transceiver

    log.info("Simulated TensorRT-LLM: %s", config)
    if world.size != config.world:
        raise GroupError(
            f"world size {world.size} is not TP{config.tp} x PP{config.pp} x CP{config.cp}: start one MPI rank a GPU"
        )
    model = read_model(config.model)
    ends: queue.SimpleQueue[Exception] = queue.SimpleQueue()
    ready = threading.Event()
    with contextlib.ExitStack() as stack:
        group = world.form(forward, ends.put)
        stack.callback(group.close)
        log.info("MPI world formed. world_size=%d", world.size)
        time.sleep(faults.start_delay)
        group.barrier()
        transceiver = None
        if config.transceiver and config.role == "prefill":
            transceiver = Transceiver("0.0.0.0", world.host, config.transceiver.backend, config.transceiver.seconds)
            stack.callback(transceiver.close)
        engine = Engine(config, model, faults, group, transceiver)
        stack.enter_context(
            OpenEngineServer(config.host, config.port, engine, faults, ready.is_set, served=config.openengine)
        )
        protocol = "OpenEngine" if config.openengine else "SMG"
        log.info("%s gRPC server listens on %s:%d", protocol, config.host, config.port)
        if not faults.never_ready:
            ready.set()
        if faults.exit_after:
            stack.callback(later(faults.exit_after.seconds, ends, FaultExitError(faults.exit_after.code)).cancel)
        raise first_end(ends)
