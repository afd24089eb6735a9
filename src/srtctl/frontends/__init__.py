"""What clients talk to: one module a kind."""

from srtctl.frontends.dynamo import dynamo_frontend, dynamo_frontend_env, router_mode
from srtctl.frontends.rules import check_frontend
from srtctl.frontends.sglang_router import Target, sglang_router

__all__ = ["Target", "check_frontend", "dynamo_frontend", "dynamo_frontend_env", "router_mode", "sglang_router"]
