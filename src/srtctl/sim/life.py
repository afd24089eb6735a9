"""The life of a simulated engine process: it serves until it is stopped or fails, and then says why."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from srtctl.sim.errors import GroupError, MemberLostError
from srtctl.sim.faults import Faults
from srtctl.sim.model import ModelError
from srtctl.sim.process import LOST_GRACE_SECONDS, FaultExitError, Stopped, catch_signals, say


@dataclass(frozen=True)
class LastWords:
    """What this engine says at its end: in its log when it was stopped, else on stderr before the reason."""

    logger: str
    stopped: str
    member_lost: str
    group: str


def live(serve: Callable[[], NoReturn], faults: Faults, words: LastWords) -> int:
    """Run `serve`, which ends by an exception; returns the exit code: 0 after SIGTERM, 1 a failure, else the fault's."""
    if faults.exit_at_start is not None:
        return say("simulated fault: exit_at_start", faults.exit_at_start)
    try:
        catch_signals()
        serve()
    except Stopped:
        logging.getLogger(words.logger).info(words.stopped)
        return 0
    except FaultExitError as end:
        return say("simulated fault: exit_after", end.code)
    except MemberLostError as error:
        time.sleep(LOST_GRACE_SECONDS)
        return say(f"{words.member_lost}: {error}")
    except GroupError as error:
        return say(f"{words.group}: {error}")
    except (ModelError, OSError) as error:
        return say(f"OSError: {error}")
