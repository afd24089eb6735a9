"""The frontend as a client sees it: chat completions with Dynamo's `nvext`, and its router's metrics."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from srtctl.checks.net import NetError, Response, fetch

_SAMPLE = re.compile(r"^(\w+)\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
REGISTERED = "dynamo_component_router_worker_registered"
MISMATCH = "dynamo_component_router_kv_event_source_mismatch_workers"
STARTED = "dynamo_frontend_requests_started_total"


@dataclass(frozen=True)
class Answer:
    """A completed chat request.

    `served_by` is `nvext.worker_id`: `{prefill,decode}_{worker_id,dp_rank}`. `hit_rate` is the router's own share of
    the prompt's blocks that it knows to be cached on the chosen rank; `cached_tokens` is the engine's word.
    `request_id` is the id that the frontend's log has too.
    """

    request_id: str
    served_by: Mapping[str, int]
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None
    hit_rate: float | None


def chat(url: str, model: str, text: str, pin: Mapping[str, int], *, timeout: float) -> Answer:
    """Ask for two tokens, from the workers and ranks of `pin` if it names any. Raises NetError."""
    response = fetch(
        f"{url}/v1/chat/completions",
        {
            "model": model,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": 2,
            "nvext": {"extra_fields": ["worker_id", "timing"], **pin},
        },
        timeout=timeout,
    )
    if response.status != 200:
        raise NetError(f"HTTP {response.status} from the frontend: {_error_text(response)}")
    body = response.json()
    try:
        extension = body.get("nvext") or {}
        usage = body["usage"]
        hit_rate = (extension.get("timing") or {}).get("kv_hit_rate")
        return Answer(
            request_id=str(body["id"]).partition("-")[2],
            served_by={str(name): int(value) for name, value in (extension.get("worker_id") or {}).items()},
            prompt_tokens=int(usage["prompt_tokens"]),
            completion_tokens=int(usage["completion_tokens"]),
            cached_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens"),
            hit_rate=None if hit_rate is None else float(hit_rate),
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        raise NetError(f"the frontend's answer is not a chat completion: {response.body[:200]!r}") from None


def _error_text(response: Response) -> str:
    body = response.json()
    message = body.get("message") or body.get("error") if isinstance(body, dict) else None
    return str(message or response.body[:200])


@dataclass(frozen=True)
class RouterView:
    """What the frontend's router says of itself: registered (worker id, DP rank) pairs, and by pool (`decode` for
    aggregated workers too) how many workers lack a KV event source."""

    registered: frozenset[tuple[int, int]]
    source_mismatches: Mapping[str, int]


@dataclass(frozen=True)
class View:
    """What one frontend lists, and what its KV router has; `router` is None in other modes, which do not tell."""

    models: tuple[str, ...]
    router: RouterView | None


def router_view(url: str, *, timeout: float) -> RouterView:
    """The router's view now. Raises NetError."""
    return parse_metrics(_metrics(url, timeout))


def requests_started(url: str, *, timeout: float) -> int:
    """How many requests the frontend has accepted since it started. Raises NetError."""
    samples = _SAMPLE.findall(_metrics(url, timeout))
    return sum(int(float(value)) for name, _, value in samples if name == STARTED)


def _metrics(url: str, timeout: float) -> str:
    response = fetch(f"{url}/metrics", timeout=timeout)
    if response.status != 200:
        raise NetError(f"{url}/metrics: HTTP {response.status}")
    return response.body


def counter(text: str, name: str, **labels: str) -> int | None:
    """The sum of a counter over its samples with those labels, in the text of some `/metrics`; None if it has none."""
    found = [
        float(value)
        for given, said, value in _SAMPLE.findall(text)
        if given == name and labels.items() <= dict(_LABEL.findall(said)).items()
    ]
    return int(sum(found)) if found else None


def models(url: str, *, timeout: float) -> tuple[str, ...]:
    """The models that the frontend lists now. Raises NetError."""
    response = fetch(f"{url}/v1/models", timeout=timeout)
    try:
        return tuple(str(model["id"]) for model in response.json()["data"])
    except (KeyError, TypeError):
        raise NetError(f"{url}/v1/models: HTTP {response.status}, not a list of models") from None


def parse_metrics(text: str) -> RouterView:
    """The router's view in the text of Dynamo 1.6.1's `/metrics`."""
    registered = set()
    mismatches: dict[str, int] = {}
    for name, labels_text, value in _SAMPLE.findall(text):
        if name not in (REGISTERED, MISMATCH):
            continue
        labels = dict(_LABEL.findall(labels_text))
        if name == REGISTERED and float(value) == 1:
            registered.add((int(labels["router_worker_id"]), int(labels["dp_rank"])))
        elif name == MISMATCH:
            pool = labels["worker_type"]
            mismatches[pool] = mismatches.get(pool, 0) + int(float(value))
    return RouterView(frozenset(registered), mismatches)
