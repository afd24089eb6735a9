"""`vllm-rs serve`, `vllm serve`, `python3 -m vllm.entrypoints.cli.main serve`: the simulated vLLM's command line.

Exit codes: 2 bad usage; 1 what the engine refuses, or a failure, its reason the last line on stderr; 0 after SIGTERM
(requests that still run are not waited for); and whatever a fault asks for.
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
from srtctl.sim.vllm.config import Config, ConfigError, read_config

#: Faults of things that vLLM does not have: SGLang's group address in its server info, its bootstrap rooms.
NOT_HERE = frozenset({"wrong_group", "same_group", "ordinary_dp_bootstrap"})


def main(argv: Sequence[str] | None = None) -> int:
    """Run a server process until it is stopped or fails; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] != ["serve"]:
        return say(
            f"usage: vllm serve MODEL [options]; the simulated engine has no {' '.join(words[:1]) or 'default'!r}", 2
        )
    try:
        config = read_config(words[1:], os.environ)
        faults = parse_faults(os.environ.get(VARIABLE, ""), config.node_rank, without=NOT_HERE)
    except FaultError as error:
        return say(str(error), 2)
    except ConfigError as error:
        return say(f"ValueError: {error}")
    log_to_stderr(
        os.environ.get("VLLM_LOGGING_LEVEL", "INFO"),
        "%(levelname)s %(asctime)s [%(filename)s:%(lineno)d] %(message)s",
        "%m-%d %H:%M:%S",
    )
    if faults.exit_at_start is not None:
        return say("simulated fault: exit_at_start", faults.exit_at_start)
    try:
        catch_signals()
        return _serve(config, faults)
    except Stopped:
        logging.getLogger("vllm").info("Application shutdown complete.")
        return 0


def _serve(config: Config, faults: Faults) -> int:
    from srtctl.sim.vllm.server import serve  # bad usage must not cost the import of grpc

    try:
        serve(config, faults)
    except FaultExitError as end:
        return say("simulated fault: exit_after", end.code)
    except MemberLostError as error:
        time.sleep(LOST_GRACE_SECONDS)
        return say(f"vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue: {error}")
    except GroupError as error:
        return say(f"torch.distributed.DistNetworkError: {error}")
    except (ModelError, OSError) as error:
        return say(f"OSError: {error}")


if __name__ == "__main__":
    sys.exit(main())
