"""What every simulated engine process does around its work: signals, last words, exit codes."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import sys
import threading

# When a job stops, all members get SIGTERM at nearly the same time: a lost member counts as a failure only after this.
LOST_GRACE_SECONDS = 1.0
LOOK_UP_SECONDS = 0.2
GROUP_TIMEOUT_VARIABLE = "SRTCTL_SIM_GROUP_TIMEOUT"
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopped(BaseException):
    """SIGTERM or SIGINT arrived."""


class FaultExitError(Exception):
    """The process ends with `code` because `exit_after` asked for it."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def catch_signals() -> None:
    """From here on SIGTERM and SIGINT raise Stopped, once."""
    for number in _SIGNALS:
        signal.signal(number, _stop)


def say(message: str, code: int = 1) -> int:
    """Print a process's last words on stderr; returns `code`, the exit code that is now decided."""
    _ignore_signals()
    print(message, file=sys.stderr, flush=True)
    return code


def log_to_stderr(level: str, form: str, times: str = "%Y-%m-%d %H:%M:%S") -> None:
    """Log lines of format `form` on stderr; an unknown `level` counts as INFO."""
    number = logging.getLevelNamesMapping().get(level, logging.INFO)
    logging.basicConfig(stream=sys.stderr, level=number, format=form, datefmt=times)


def later(seconds: float, ends: queue.SimpleQueue[Exception], end: Exception) -> threading.Timer:
    """Put `end` into `ends` after `seconds`."""
    timer = threading.Timer(seconds, ends.put, [end])
    timer.daemon = True
    timer.start()
    return timer


def first_end(ends: queue.SimpleQueue[Exception]) -> Exception:
    """The first of `ends`, waited for in the main thread.

    It looks up now and then: a signal that another thread of gRPC's received is handled only then.
    """
    while True:
        with contextlib.suppress(queue.Empty):
            return ends.get(timeout=LOOK_UP_SECONDS)


def group_timeout(default: float) -> float:
    """Seconds to wait for the other members of the group; a test sets fewer."""
    text = os.environ.get(GROUP_TIMEOUT_VARIABLE)
    return float(text) if text else default


def _stop(number: int, _: object) -> None:
    _ignore_signals()
    raise Stopped(signal.Signals(number).name)


def _ignore_signals() -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
