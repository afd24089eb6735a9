"""`python3 -m tensorrt_llm.llmapi.mgmn_worker_node`: every rank of the simulated engine but 0.

It serves rank 0 until that is gone. SIGTERM alone does not end it: a job stops all ranks at once, and rank 0 still needs
them while its streams end. Exit code 0 after that, 1 when rank 0 was lost, its reason the last line on stderr.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import threading
from typing import NoReturn

from srtctl.sim.errors import GroupError, MemberLostError
from srtctl.sim.faults import VARIABLE, FaultError, Faults, parse_faults
from srtctl.sim.process import (
    LOST_GRACE_SECONDS,
    FaultExitError,
    Stopped,
    catch_signals,
    first_end,
    later,
    log_to_stderr,
    say,
)
from srtctl.sim.trtllm.world import World, read_world

log = logging.getLogger("trtllm")

FORMAT = "[%(asctime)s] [TRT-LLM] [%(levelname).1s] %(message)s"


def main() -> int:
    """Run one rank; returns its exit code."""
    try:
        world = read_world(os.environ)
        faults = parse_faults(os.environ.get(VARIABLE, ""), world.rank)
    except FaultError as error:
        return say(str(error), 2)
    except GroupError as error:
        return say(f"RuntimeError: {error}")
    log_to_stderr("INFO", FORMAT)
    if faults.exit_at_start is not None:
        return say("simulated fault: exit_at_start", faults.exit_at_start)
    catch_signals()
    stopping = threading.Event()
    try:
        _serve(world, faults, stopping)
    except Stopped:
        return 0
    except FaultExitError as end:
        return say("simulated fault: exit_after", end.code)
    except MemberLostError as error:
        if stopping.wait(LOST_GRACE_SECONDS):
            return 0
        return say(f"RuntimeError: MPI_ABORT was invoked on rank {world.rank} in communicator MPI_COMM_WORLD: {error}")
    except GroupError as error:
        return say(f"RuntimeError: {error}")


def _serve(world: World, faults: Faults, stopping: threading.Event) -> NoReturn:
    """Join, answer rank 0, and raise what ended it."""
    from srtctl.sim.trtllm.engine import forward

    ends: queue.SimpleQueue[Exception] = queue.SimpleQueue()
    with contextlib.ExitStack() as stack:
        group = world.form(forward, ends.put)
        stack.callback(group.close)
        group.barrier()
        log.info("Rank %d of %d is up.", world.rank, world.size)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopping.set())
        if faults.exit_after:
            stack.callback(later(faults.exit_after.seconds, ends, FaultExitError(faults.exit_after.code)).cancel)
        raise first_end(ends)
