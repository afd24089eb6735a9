"""Dynamo's OpenAI frontend and KV router: `python3 -m dynamo.frontend`."""

from __future__ import annotations

from collections.abc import Mapping

from srtctl.recipe.arguments import Arguments, words
from srtctl.recipe.model import Frontend


def router_mode(frontend: Frontend, kv_events: bool) -> str:
    """The router mode: what the recipe says, else `kv` when some role publishes KV events, else Dynamo's default."""
    written = Arguments("frontend.args", frontend.args).get("router-mode")
    if written is not None:
        return str(written.value)
    return "kv" if kv_events else "round-robin"


def dynamo_frontend(frontend: Frontend, mode: str, *, port: int) -> tuple[str, ...]:
    """The frontend's command."""
    argv = ["python3", "-m", "dynamo.frontend"]
    argv += ["--http-host", "0.0.0.0", "--http-port", str(port), "--router-mode", mode]
    rest = (item for item in Arguments("frontend.args", frontend.args) if item.flag != "router-mode")
    argv += [word for item in rest for word in words(item)]
    return tuple(argv)


def dynamo_frontend_env(dynamo_env: Mapping[str, str], address: str) -> dict[str, str]:
    """Its environment on the node with that address: nodes have several NICs, so nothing is left to detection."""
    return {**dynamo_env, "DYN_EVENT_PLANE_HOST": address, "DYN_TCP_RESPONSE_STREAM_HOST": address}
