"""What Dynamo's discovery holds: model cards and KV event sources, from etcd or from the file backend.

The layout (keys, JSON values, percent-encoded file names) is that of Dynamo 1.6.1, recorded in
tests/unit/checks/data. etcd is read over its JSON gateway, so no client library is needed.
"""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from srtctl.checks.deployment import EtcdDiscovery, FileDiscovery
from srtctl.checks.net import NetError, fetch

_CARDS = "v1/mdc/"
_SOURCES = "v1/event_sources/"
_KV_TOPIC = "/topic/kv-events/"


@dataclass(frozen=True)
class Card:
    """One serving registration. `status_servers` are the `host:port` where its sidecar serves the model's files.

    `native_endpoint` and `native_mode` are what a worker advertises for direct dispatch; empty where it does not.
    `bootstrap` is the `host:port` that a prefill worker announces, `group` the distributed group of a worker of several
    nodes; empty where there is none.
    """

    key: str
    worker_id: int
    model: str
    worker_type: str
    first_rank: int
    ranks: int
    block_size: int
    context_length: int
    status_servers: frozenset[str]
    bootstrap: str = ""
    group: str = ""
    native_endpoint: str = ""
    native_mode: str = ""

    def dp_ranks(self) -> range:
        return range(self.first_rank, self.first_rank + self.ranks)


@dataclass(frozen=True)
class Source:
    """One KV event source: the relay of one DP rank's events."""

    key: str
    worker_id: int
    dp_rank: int


@dataclass(frozen=True)
class Snapshot:
    """Everything registered at one moment; `unreadable` are keys whose value is not what Dynamo 1.6.1 writes."""

    cards: tuple[Card, ...]
    sources: tuple[Source, ...]
    unreadable: tuple[str, ...]


def read(discovery: EtcdDiscovery | FileDiscovery, *, timeout: float) -> Snapshot:
    """What is registered now. Raises NetError when the store does not answer."""
    if isinstance(discovery, FileDiscovery):
        return parse(_files(discovery))
    return parse({**_etcd(discovery, _CARDS, timeout), **_etcd(discovery, _SOURCES, timeout)})


def parse(entries: Mapping[str, str]) -> Snapshot:
    """The registrations among `entries`, sorted by key; other keys are ignored."""
    cards: list[Card] = []
    sources: list[Source] = []
    unreadable: list[str] = []
    for key, text in sorted(entries.items()):
        try:
            if key.startswith(_CARDS):
                cards.append(_card(key, json.loads(text)))
            elif key.startswith(_SOURCES) and _KV_TOPIC in key:
                worker = json.loads(text)["metadata"]["worker"]
                sources.append(Source(key, int(worker["worker_id"]), int(worker["dp_rank"])))
        except (ValueError, KeyError, TypeError, AttributeError):
            unreadable.append(key)
    return Snapshot(tuple(cards), tuple(sources), tuple(unreadable))


def _card(key: str, value: Any) -> Card:
    card = value["card_json"]
    runtime = card["runtime_config"]
    data = runtime.get("runtime_data") or {}
    return Card(
        key=key,
        worker_id=int(value["instance_id"]),
        model=card["display_name"],
        worker_type=card["worker_type"],
        first_rank=int(runtime["data_parallel_start_rank"]),
        ranks=int(runtime["data_parallel_size"]),
        block_size=int(card["kv_cache_block_size"]),
        context_length=int(card["context_length"]),
        status_servers=frozenset(_status_servers(card)),
        bootstrap=_bootstrap(runtime.get("disaggregated_endpoint")),
        group=str(data.get("sglang_worker_group_id") or ""),
        native_endpoint=str(data.get("native_grpc_endpoint") or ""),
        native_mode=str(data.get("native_grpc_mode") or ""),
    )


def _bootstrap(endpoint: Any) -> str:
    return f"{endpoint['bootstrap_host']}:{endpoint['bootstrap_port']}" if endpoint else ""


def _status_servers(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _status_servers(item)
    elif isinstance(value, str) and value.startswith("http://") and "/v1/metadata/" in value:
        yield urlsplit(value).netloc


def _etcd(discovery: EtcdDiscovery, prefix: str, timeout: float) -> dict[str, str]:
    end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
    body = {"key": _encode(prefix), "range_end": _encode(end)}
    failures = []
    for endpoint in discovery.endpoints:
        try:
            response = fetch(f"{endpoint.rstrip('/')}/v3/kv/range", body, timeout=timeout)
            if response.status != 200:
                raise NetError(f"{endpoint}: HTTP {response.status}")
            pairs = response.json().get("kvs", [])
            return {_decode(pair["key"]): _decode(pair.get("value", "")) for pair in pairs}
        except NetError as error:
            failures.append(str(error))
        except (AttributeError, KeyError, TypeError, ValueError):
            failures.append(f"{endpoint}: not the answer of etcd's JSON gateway")
    raise NetError("; ".join(failures))


def _encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _decode(text: str) -> str:
    return base64.b64decode(text).decode(errors="replace")


def _files(discovery: FileDiscovery) -> dict[str, str]:
    entries = {}
    for prefix in (_CARDS, _SOURCES):
        folder = discovery.root / prefix
        try:
            names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
            for name in names:
                with contextlib.suppress(FileNotFoundError):  # unregistered since the listing
                    entries[prefix + unquote(name)] = (folder / name).read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise NetError(f"{folder}: {error.strerror}") from None
    return entries
