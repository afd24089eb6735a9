"""The REFERENCE sidecar for vLLM (`python3 -m dynamo.vllm.sidecar` of an image whose Dynamo has direct dispatch).

Exit codes: 2 bad usage; 1 no engine, or no etcd, its reason the last line on stderr; 0 after SIGTERM.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import secrets
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

from srtctl.sim.direct.card import CARDS, Place, registrations
from srtctl.sim.direct.engine import ConnectError, EngineClient
from srtctl.sim.direct.etcd import Etcd
from srtctl.sim.direct.plane import RequestPlane, status_routes
from srtctl.sim.http_server import HttpServer
from srtctl.sim.process import Stopped, catch_signals, log_to_stderr, say

LEASE_SECONDS = 10
KEEP_SECONDS = 2.0
_ASK_SECONDS = 10.0
log = logging.getLogger("reference.sidecar")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the sidecar until it is stopped or fails; returns the exit code."""
    args = _parser(os.environ).parse_args(argv)
    log_to_stderr("INFO", "%(asctime)s %(levelname)s %(name)s: %(message)s")
    catch_signals()
    try:
        serve(args, os.environ)
    except Stopped:
        log.info("stopped")
        return 0
    except (ConnectError, OSError, ValueError) as error:
        return say(f"Error: {error}")


def serve(args: argparse.Namespace, env: Mapping[str, str]) -> NoReturn:
    """Wait for the engine, register it, stay registered. Raises ConnectError, OSError or ValueError; ends by a signal.

    The engine's end does not unregister it: neither does it with Dynamo 1.6.1.
    """
    if env.get("DYN_DISCOVERY_BACKEND", "etcd") != "etcd" or not env.get("ETCD_ENDPOINTS"):
        raise ValueError("the reference sidecar registers in etcd: set ETCD_ENDPOINTS")
    engine, etcd = EngineClient(args.grpc_endpoint), Etcd(env["ETCD_ENDPOINTS"])
    with contextlib.ExitStack() as stack:
        stack.callback(engine.drop)
        engine.wait(args.grpc_startup_deadline_secs)
        info = engine.info(_ASK_SECONDS)
        log.info("vLLM gRPC services are ready endpoint=%s ranks=%s", engine.address, list(info.ranks))
        plane = RequestPlane(engine, env.get("DYN_TCP_RPC_HOST", "127.0.0.1"))
        stack.callback(plane.close)
        place = Place(args.namespace, _component(args), args.endpoint, secrets.randbits(62) | 1)
        status = f"{env.get('DYN_SYSTEM_HOST', '127.0.0.1')}:{env.get('DYN_SYSTEM_PORT', '0')}"
        entries = dict(
            registrations(
                place,
                info,
                status=status,
                plane=plane.address,
                mode=args.disaggregation_mode,
                advertised=args.advertise_grpc_endpoint or "",
            )
        )
        url = urlsplit(entries[CARDS + place.path]["card_json"]["tokenizer"]["hf_tokenizer_json"]["path"])
        labels = {"dynamo_namespace": place.namespace, "dynamo_component": place.component}
        labels |= {"dynamo_endpoint": place.endpoint, "worker_id": f"{place.worker_id:x}"}
        routes = status_routes(Path(info.model_path), url.path.rpartition("/")[0], plane, labels)
        stack.callback(HttpServer(url.hostname or "", url.port or 0, routes, lambda: True).close)
        lease = etcd.grant(LEASE_SECONDS)
        stack.callback(_revoke, etcd, lease)
        for key, value in entries.items():
            etcd.put(key, value, lease)
        if args.advertise_grpc_endpoint:
            log.info("advertising vLLM gRPC endpoint for direct dispatch: %s", args.advertise_grpc_endpoint)
        log.info("registered %s as worker id %d", info.served_name, place.worker_id)
        while etcd.keep(lease):
            time.sleep(KEEP_SECONDS)
        raise ConnectError("etcd ended the lease of this registration")


def _revoke(etcd: Etcd, lease: int) -> None:
    with contextlib.suppress(OSError, ValueError):  # etcd may have been stopped first; the lease then ends by itself
        etcd.revoke(lease)


def _component(args: argparse.Namespace) -> str:
    return "prefill" if args.disaggregation_mode == "prefill" else str(args.component)


def _endpoint(text: str) -> str:
    """`host:port` as Dynamo writes it, with a scheme."""
    address = text.strip().removeprefix("http://").removeprefix("grpc://")
    host, colon, port = address.rpartition(":")
    if not (host and colon and port.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not host:port")
    return f"http://{address}"


def _parser(env: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="dynamo-vllm-sidecar (reference)", description=__doc__, allow_abbrev=False)
    endpoint = env.get("DYN_SIDECAR_GRPC_ENDPOINT")
    parser.add_argument("--grpc-endpoint", type=_endpoint, required=endpoint is None, default=endpoint)
    parser.add_argument(
        "--advertise-grpc-endpoint",
        type=_endpoint,
        default=env.get("DYN_ADVERTISE_GRPC_ENDPOINT") or None,
        help="frontend-routable address of the engine's gRPC server: frontends with direct dispatch call it themselves",
    )
    parser.add_argument("--namespace", default=env.get("DYN_NAMESPACE", "dynamo"))
    parser.add_argument("--component", default=env.get("DYN_COMPONENT", "backend"))
    parser.add_argument("--endpoint", default=env.get("DYN_ENDPOINT", "generate"))
    parser.add_argument("--disaggregation-mode", choices=("agg", "prefill", "decode"), default="agg")
    parser.add_argument("--grpc-startup-deadline-secs", type=float, default=1800.0)
    return parser


if __name__ == "__main__":
    sys.exit(main())
