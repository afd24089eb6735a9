"""`python3 -m sglang.launch_server`: the command line of the simulated SGLang server.

Exit codes: 2 bad usage; 1 what the engine refuses, or a failure, its reason the last line on stderr; 0 after SIGTERM
(the real server drains, then ends with `sys.exit(0)`; the simulated one does not wait for requests that still run);
and whatever a fault asks for.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Sequence

from srtctl.sim.faults import VARIABLE, FaultError, Faults, parse_faults
from srtctl.sim.model import ModelError
from srtctl.sim.sglang.config import Config, ConfigError, read_config
from srtctl.sim.sglang.rendezvous import GroupError, MemberLostError

# When a job stops, all members get SIGTERM at nearly the same time: a lost member counts as a failure only after this.
LOST_GRACE_SECONDS = 1.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopped(BaseException):
    """SIGTERM or SIGINT arrived."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a server process until it is stopped or fails; returns the exit code."""
    try:
        config = read_config(sys.argv[1:] if argv is None else argv)
        faults = parse_faults(os.environ.get(VARIABLE, ""), config.node_rank)
    except FaultError as error:
        return _say(str(error), 2)
    except ConfigError as error:
        return _say(f"AssertionError: {error}")
    _set_up_logging(config)
    if faults.exit_at_start is not None:
        return _say("simulated fault: exit_at_start", faults.exit_at_start)
    try:
        for number in _SIGNALS:
            signal.signal(number, _stop)
        return _serve(config, faults)
    except Stopped:
        logging.getLogger("sglang").info("Gracefully exiting... Remaining number of requests 0.")
        return 0


def _serve(config: Config, faults: Faults) -> int:
    from srtctl.sim.sglang.server import FaultExitError, serve  # bad usage must not cost the import of grpc

    try:
        serve(config, faults)
    except FaultExitError as end:
        return _say("simulated fault: exit_after", end.code)
    except MemberLostError as error:
        time.sleep(LOST_GRACE_SECONDS)
        return _say(f"torch.distributed.DistBackendError: NCCL error: {error}")
    except GroupError as error:
        return _say(f"torch.distributed.DistError: {error}")
    except (ModelError, OSError) as error:
        return _say(f"OSError: {error}")


def _set_up_logging(config: Config) -> None:
    level = logging.getLevelNamesMapping().get(config.log_level, logging.INFO)
    logging.basicConfig(
        stream=sys.stderr,
        level=level,
        format=f"[%(asctime)s node{config.node_rank}] %(message)s",
        datefmt="%Y-%m-%d %H:%M:%S",
    )


def _stop(number: int, _: object) -> None:
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise Stopped(signal.Signals(number).name)


def _say(message: str, code: int = 1) -> int:
    for number in _SIGNALS:  # the end is decided
        signal.signal(number, signal.SIG_IGN)
    print(message, file=sys.stderr, flush=True)
    return code
