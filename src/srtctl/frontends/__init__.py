"""What clients talk to: one module a kind."""

from srtctl.frontends.dynamo import dynamo_frontend, dynamo_frontend_env, router_mode
from srtctl.frontends.kinds import DYNAMO, check_kind, has_process, is_direct, router_of
from srtctl.frontends.nginx import NGINX, nginx
from srtctl.frontends.rules import check_frontend
from srtctl.frontends.targets import Target

__all__ = [
    "DYNAMO",
    "NGINX",
    "Target",
    "check_frontend",
    "check_kind",
    "dynamo_frontend",
    "dynamo_frontend_env",
    "has_process",
    "is_direct",
    "nginx",
    "router_mode",
    "router_of",
]
