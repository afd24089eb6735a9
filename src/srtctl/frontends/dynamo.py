"""Dynamo's OpenAI frontend and KV router: `python3 -m dynamo.frontend`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from srtctl.recipe.arguments import Arguments, words
from srtctl.recipe.model import Frontend


@dataclass(frozen=True, slots=True)
class DynamoFrontend:
    argv: tuple[str, ...]
    env: Mapping[str, str]


def router_mode(frontend: Frontend, kv_events: bool) -> str:
    """The router mode: what the recipe says, else `kv` when some role publishes KV events, else Dynamo's default."""
    written = Arguments("frontend.args", frontend.args).get("router-mode")
    if written is not None:
        return str(written.value)
    return "kv" if kv_events else "round-robin"


def dynamo_frontend(
    frontend: Frontend, mode: str, *, port: int, address: str, dynamo_env: Mapping[str, str]
) -> DynamoFrontend:
    """The frontend's command and environment; `address` is that of its own node."""
    own = {"http-host", "http-port", "router-mode"}
    argv = [
        "python3",
        "-m",
        "dynamo.frontend",
        "--http-host",
        "0.0.0.0",
        "--http-port",
        str(port),
        "--router-mode",
        mode,
    ]
    argv += [word for item in Arguments("frontend.args", frontend.args) if item.flag not in own for word in words(item)]
    env = {**dynamo_env, "DYN_EVENT_PLANE_HOST": address, "DYN_TCP_RESPONSE_STREAM_HOST": address, **frontend.env}
    return DynamoFrontend(tuple(argv), env)
