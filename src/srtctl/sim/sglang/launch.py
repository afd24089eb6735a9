"""`python3 -m sglang.launch_server`: the command line of the simulated SGLang server.

Exit codes: 2 bad usage; 1 what the engine refuses, or a failure, its reason the last line on stderr; 0 after SIGTERM
(the real server drains, then ends with `sys.exit(0)`; the simulated one does not wait for requests that still run);
and whatever a fault asks for.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import NoReturn

from srtctl.sim.faults import VARIABLE, FaultError, Faults, parse_faults
from srtctl.sim.life import LastWords, live
from srtctl.sim.process import log_to_stderr, say
from srtctl.sim.sglang.config import Config, ConfigError, read_config

LAST_WORDS = LastWords(
    logger="sglang",
    stopped="Gracefully exiting... Remaining number of requests 0.",
    member_lost="torch.distributed.DistBackendError: NCCL error",
    group="torch.distributed.DistError",
)


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
    return live(partial(_serve, config, faults), faults, LAST_WORDS)


def _serve(config: Config, faults: Faults) -> NoReturn:
    from srtctl.sim.sglang.server import serve  # bad usage must not cost the import of grpc

    serve(config, faults)
