"""`--kv-events-config`: one port for the base of an engine's KV publishers; rank r binds base + r.

Port 0 is the *discovered* mode: each rank binds any port, and the engine tells which. Only vLLM's native server does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from srtctl.backends.base import PortNeed
from srtctl.diagnostics import Diagnostic
from srtctl.recipe.arguments import Argument, Arguments, compact_json
from srtctl.recipe.model import KvEvents

FLAG = "kv-events-config"
DISCOVERED = 0


def check_config(args: Arguments, *, discoverable: bool = False) -> Iterator[Diagnostic]:
    """A finding where what the user wrote is no configuration with a port; `discoverable`: or with port 0."""
    for item in args.all(FLAG):
        value = item.value
        if not isinstance(value, dict) or ("endpoint" in value and _endpoint_port(item) is None):
            yield Diagnostic(
                "args/kv-events-config",
                "`kv-events-config` must be a mapping whose endpoint, if any, is like `tcp://*:5557`",
                item.path,
                hint="usually `kv_events: true` on the role is enough",
            )
        elif not discoverable and _endpoint_port(item) == DISCOVERED:
            yield Diagnostic(
                "args/kv-events-port",
                "with port 0 in `kv-events-config` nobody learns which ports the engine chose",
                item.path,
                hint="leave the endpoint out, so that srtctl chooses; only vLLM's native server, with `sidecar: true`, tells",
            )


def discovered(args: Arguments) -> bool:
    """Whether the user wrote port 0, so that nothing is to be claimed."""
    return _endpoint_port(args.get(FLAG)) == DISCOVERED


def port_need(args: Arguments, ranks: int, *, common: bool = False) -> PortNeed:
    """A port for each global rank: the offset is the *global* rank whatever node it lands on."""
    written = args.get(FLAG)
    return PortNeed("kv_events", ranks, _endpoint_port(written), written.path if written else "", common)


def config_text(events: KvEvents, written: Argument | None, base: int, **more: Any) -> str:
    """The value of the flag; what the user wrote wins over what the role's `kv_events` say."""
    config = {**more, "publisher": events.publisher, "topic": events.topic, "endpoint": f"tcp://*:{base}"}
    if written and isinstance(written.value, dict):
        config |= written.value
    return compact_json(config)


def _endpoint_port(written: Argument | None) -> int | None:
    endpoint = str(written.value.get("endpoint", "")) if written and isinstance(written.value, dict) else ""
    port = endpoint.rpartition(":")[2]
    return int(port) if endpoint.startswith("tcp://") and port.isdecimal() and int(port) < 65536 else None
