"""HTTP to the deployment's own processes: never through a proxy, always with a timeout, never an exception but one."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class NetError(Exception):
    """Nothing usable came back; the text says from where and why, fit for a message."""


@dataclass(frozen=True)
class Deadline:
    """A moment of the monotonic clock."""

    at: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        return cls(time.monotonic() + seconds)

    def within(self, seconds: float) -> Deadline:
        """The earlier of this deadline and `seconds` from now."""
        return min(self, Deadline.after(seconds), key=lambda deadline: deadline.at)

    def remaining(self) -> float:
        """Seconds left; 0 when it has passed."""
        return max(0.0, self.at - time.monotonic())


@dataclass(frozen=True)
class Response:
    """An HTTP answer, whatever its status."""

    status: int
    body: str

    def json(self) -> Any:
        """The body as JSON, or None if it is something else."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


def fetch(url: str, body: object = None, *, timeout: float) -> Response:
    """GET `url`, or POST `body` as JSON to it. Waits at most `timeout` seconds for each read. Raises NetError."""
    if timeout <= 0:
        raise NetError(f"{url}: not asked, the time for the checks was over")
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json"})
    try:
        with _OPENER.open(request, timeout=timeout) as answer:
            return Response(answer.status, answer.read().decode(errors="replace"))
    except urllib.error.HTTPError as error:
        with error:
            return Response(error.code, error.read().decode(errors="replace"))
    except urllib.error.URLError as error:
        raise NetError(f"{url}: {_reason(error.reason, timeout)}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NetError(f"{url}: {_reason(error, timeout)}") from None


def _reason(error: object, timeout: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer in {timeout:.3g} s"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
