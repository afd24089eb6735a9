"""What every check gets: the deployment, the time it may take, and ways to look at the deployment."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TypeVar

from srtctl.checks import discovery, frontend, pinning
from srtctl.checks.deployment import Deployment
from srtctl.checks.identity import assign
from srtctl.checks.model import Target
from srtctl.checks.net import Deadline

T = TypeVar("T")


@dataclass(frozen=True)
class Limits:
    """Seconds, but for `parallel`.

    request: one HTTP exchange; an engine's first request may compile kernels.
    registration: how long a registration may take to show everywhere; an etcd lease outlives its process by 16 s.
    kv_events: from the first try of the KV-event targets to the last; also how long a publisher may stay silent.
    load: all requests of the load together.
    settle: how long the event of one request may take to reach the router.
    connect: how long a frontend may take to connect to the engines that it is to call itself.
    poll: the pause between two looks. parallel: requests in flight at a time.
    """

    request: float = 60.0
    registration: float = 20.0
    kv_events: float = 15.0
    load: float = 120.0
    settle: float = 2.0
    connect: float = 10.0
    poll: float = 0.25
    parallel: int = 16

    def for_check(self, timeout: float | None) -> Limits:
        """The limits of a check whose plan gives it `timeout` seconds."""
        if timeout is None:
            return self
        request = min(self.request, timeout)
        return replace(self, request=request, registration=timeout, kv_events=timeout, load=timeout, connect=timeout)


@dataclass(frozen=True)
class Context:
    """`settings` are the numbers of the check that runs now; `broken` are the targets that failed an earlier check."""

    deployment: Deployment
    limits: Limits
    deadline: Deadline
    settings: Mapping[str, int] = field(default_factory=dict)
    broken: frozenset[Target] = frozenset()

    def timeout(self) -> float:
        """Seconds that one HTTP exchange may take now."""
        return min(self.limits.request, self.deadline.remaining())

    def snapshot(self) -> discovery.Snapshot:
        """What discovery holds now. Raises NetError."""
        return discovery.read(self.deployment.discovery, timeout=self.timeout())

    def views(self) -> dict[str, frontend.View]:
        """What each frontend lists and has registered now, by what messages call it. Raises NetError."""
        return {
            self.deployment.called(name): frontend.View(
                frontend.models(url, timeout=self.timeout()),
                frontend.router_view(url, timeout=self.timeout()) if self.deployment.kv_router else None,
            )
            for name, url in self.deployment.frontends.items()
        }

    def instances(self) -> dict[Target, discovery.Card]:
        """The registration that serves each (worker, rank) now. Raises NetError."""
        return assign(self.deployment.workers, self.snapshot().cards).instances()

    def pin(self, instances: Mapping[Target, discovery.Card], target: Target, turn: int = 0) -> pinning.Pin | str:
        """The pin of `target`, or why it has none."""
        return pinning.pin(self.deployment, instances, target, turn, self.broken)

    def requests_started(self) -> dict[str, int]:
        """How many requests each frontend has accepted so far. Raises NetError."""
        frontends = self.deployment.frontends.items()
        return {name: frontend.requests_started(url, timeout=self.timeout()) for name, url in frontends}

    def chat(self, text: str, pin: Mapping[str, int], by: str = "") -> frontend.Answer:
        """One request, as clients send it or straight to the frontend `by`. Raises NetError."""
        url = self.deployment.frontends[by] if by else self.deployment.endpoint
        return frontend.chat(url, self.deployment.model, text, pin, timeout=self.timeout())

    def pause(self) -> None:
        """Wait before the next look at the same thing."""
        time.sleep(min(self.limits.poll, self.deadline.remaining()))

    def each(self, ask: Callable[[Target], T], targets: Iterable[Target]) -> dict[Target, T]:
        """`ask` of every target, several at a time; the result keeps the targets' order."""
        with ThreadPoolExecutor(self.limits.parallel) as pool:
            asked = {target: pool.submit(ask, target) for target in targets}
            return {target: future.result() for target, future in asked.items()}
