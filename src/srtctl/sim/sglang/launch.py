"""`python3 -m sglang.launch_server`: the command line of the simulated SGLang server.

Exit codes: 2 bad usage; 1 what the engine refuses, or a failure, its reason the last line on stderr; 0 after SIGTERM
(the real server drains, then ends with `sys.exit(0)`; the simulated one does not wait for requests that still run);
and whatever a fault asks for.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Sequence

from srtctl.sim.errors import GroupError, MemberLostError
from srtctl.sim.faults import VARIABLE, FaultError, Faults, parse_faults
from srtctl.sim.model import ModelError
from srtctl.sim.process import LOST_GRACE_SECONDS, FaultExitError, Stopped, catch_signals, log_to_stderr, say
from srtctl.sim.sglang.config import Config, ConfigError, read_config


def main(argv: Sequence[str] | None = None) -> int:
    """Run a server process until it is stopped or fails; returns the exit code."""
    try:
        config = read_config(sys.argv[1:] if argv is None else argv)
        faults = parse_faults(os.environ.get(VARIABLE, ""), config.node_rank)
    except FaultError as error:
        return say(str(error), 2)
    except ConfigError as error:
        return say(f"AssertionError: {error}")
    log_to_stderr(config.log_level, f"[%(asctime)s node{config.node_rank}] %(message)s")
    if faults.exit_at_start is not None:
        return say("simulated fault: exit_at_start", faults.exit_at_start)
    try:
        catch_signals()
        return _serve(config, faults)
    except Stopped:
        logging.getLogger("sglang").info("Gracefully exiting... Remaining number of requests 0.")
        return 0


def _serve(config: Config, faults: Faults) -> int:
    from srtctl.sim.sglang.server import serve  # bad usage must not cost the import of grpc

    try:
        serve(config, faults)
    except FaultExitError as end:
        return say("simulated fault: exit_after", end.code)
    except MemberLostError as error:
        time.sleep(LOST_GRACE_SECONDS)
        return say(f"torch.distributed.DistBackendError: NCCL error: {error}")
    except GroupError as error:
        return say(f"torch.distributed.DistError: {error}")
    except (ModelError, OSError) as error:
        return say(f"OSError: {error}")
