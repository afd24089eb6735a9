"""What clients talk to."""

from srtctl.frontends.dynamo import DynamoFrontend, dynamo_frontend, router_mode

__all__ = ["DynamoFrontend", "dynamo_frontend", "router_mode"]
