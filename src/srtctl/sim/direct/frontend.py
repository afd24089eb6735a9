"""The REFERENCE frontend (`python3 -m dynamo.frontend` of an image whose Dynamo has direct dispatch).

`DYN_ROUTER_DIRECT_DISPATCH=vllm` turns direct dispatch on. Exit codes: 2 bad usage; 1 a failure, its reason the last
line on stderr; 0 after SIGTERM.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import NoReturn

from srtctl.sim.direct.card import CARDS, INSTANCES, Member, members
from srtctl.sim.direct.etcd import Etcd
from srtctl.sim.direct.registry import DirectRegistry
from srtctl.sim.direct.router import Router
from srtctl.sim.direct.web import Web
from srtctl.sim.process import Stopped, catch_signals, log_to_stderr, say

VARIABLE = "DYN_ROUTER_DIRECT_DISPATCH"
POLL_SECONDS = 0.2
log = logging.getLogger("reference.frontend")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the frontend until it is stopped or fails; returns the exit code."""
    parser = _parser()
    args = parser.parse_args(argv)
    if (wanted := os.environ.get(VARIABLE, "")) not in ("", "vllm"):
        parser.error(f"{VARIABLE}={wanted}: vllm is the only engine that can be dispatched to")
    log_to_stderr("INFO", "%(asctime)s %(levelname)s %(name)s: %(message)s")
    catch_signals()
    try:
        serve(args, os.environ)
    except Stopped:
        log.info("stopped")
        return 0
    except (OSError, ValueError) as error:
        return say(f"Error: {error}")


def serve(args: argparse.Namespace, env: Mapping[str, str]) -> NoReturn:
    """Listen, then follow the membership. Raises OSError or ValueError; ends by a signal."""
    if env.get("DYN_DISCOVERY_BACKEND", "etcd") != "etcd" or not env.get("ETCD_ENDPOINTS"):
        raise ValueError("the reference frontend finds workers in etcd: set ETCD_ENDPOINTS")
    registry = DirectRegistry() if env.get(VARIABLE) else None
    with contextlib.ExitStack() as stack:
        router = Router(registry)
        stack.callback(router.update, {})
        if registry:
            stack.callback(registry.close)
        stack.callback(Web(args.http_host, args.http_port, router).close)
        log.info(
            "HTTP service on %s:%d, direct dispatch %s", args.http_host, args.http_port, "on" if registry else "off"
        )
        follow(Etcd(env["ETCD_ENDPOINTS"]), router, registry)


def follow(etcd: Etcd, router: Router, registry: DirectRegistry | None) -> NoReturn:
    """Tell the router, then the registry, of every change of membership; etcd is asked for it again and again."""
    known: dict[int, Member] | None = None
    while True:
        try:
            found = members(etcd.prefix(CARDS), etcd.prefix(INSTANCES))
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("discovery cannot be read, the workers stay as they were: %s", error)
            found = known or {}
        if found != known:
            known = found
            log.info("membership changed: %s", sorted(found))
            router.update(found)
            if registry:
                registry.reconcile(found)
        time.sleep(POLL_SECONDS)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="dynamo.frontend (reference)", description=__doc__, allow_abbrev=False)
    parser.add_argument("--http-host", default="0.0.0.0")
    parser.add_argument("--http-port", type=int, default=8000)
    parser.add_argument(
        "--router-mode", choices=("kv",), default="kv", help="the router that direct dispatch is part of"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
