"""`vllm-rs serve`, `vllm serve`, `python3 -m vllm.entrypoints.cli.main serve`: the simulated vLLM's command line.

Exit codes: 2 bad usage; 1 what the engine refuses, or a failure, its reason the last line on stderr; 0 after SIGTERM
(requests that still run are not waited for); and whatever a fault asks for.
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
from srtctl.sim.vllm.config import Config, ConfigError, read_config

#: Faults of things that vLLM does not have: SGLang's group address in its server info, its bootstrap rooms.
NOT_HERE = frozenset({"wrong_group", "same_group", "ordinary_dp_bootstrap"})

LAST_WORDS = LastWords(
    logger="vllm",
    stopped="Application shutdown complete.",
    member_lost="vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue",
    group="torch.distributed.DistNetworkError",
)


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
    return live(partial(_serve, config, faults), faults, LAST_WORDS)


def _serve(config: Config, faults: Faults) -> NoReturn:
    from srtctl.sim.vllm.server import serve  # bad usage must not cost the import of grpc

    serve(config, faults)


if __name__ == "__main__":
    sys.exit(main())
