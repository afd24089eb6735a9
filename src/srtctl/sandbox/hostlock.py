"""Locks between processes of this machine that leave no file behind."""

from __future__ import annotations

import hashlib
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

from srtctl.sandbox.errors import SandboxRefusedError

POLL_SECONDS = 0.05


@contextmanager
def host_lock(subject: str, *, wait_seconds: float = 0) -> Iterator[None]:
    """Holds the lock on `subject`; the kernel frees it when the process ends, however it ends.

    An abstract unix socket (unix(7)): its name can be bound once in a network namespace. Raises SandboxRefusedError
    when another process holds it for `wait_seconds`.
    """
    name = f"\0srtctl-{hashlib.sha256(subject.encode()).hexdigest()[:32]}"
    deadline = time.monotonic() + wait_seconds
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as lock:
        while True:
            try:
                lock.bind(name)
                break
            except OSError:
                if time.monotonic() >= deadline:
                    raise SandboxRefusedError(
                        f"another srtctl command is at work on {subject}", hint="try again when it has ended"
                    ) from None
                time.sleep(POLL_SECONDS)
        yield
