"""Dynamo: transports, installation and sidecar defaults; and the infrastructure it needs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from srtctl.reading.types import Seconds
from srtctl.reading.validation import Strict
from srtctl.recipe.inputs import SidecarArgs
from srtctl.recipe.placement import Placement


class Dynamo(Strict):
    """Dynamo's transports, and the defaults of the roles' sidecars."""

    install: Literal[False] = Field(
        default=False,
        description="Installing Dynamo at job start is not built: only `false` is accepted, the image holds Dynamo.",
    )
    request_plane: Literal["tcp", "nats"] = Field(
        default="tcp",
        description="How requests travel from frontend to worker: `tcp` or `nats`.",
    )
    event_plane: Literal["zmq", "nats"] = Field(
        default="zmq",
        description="How KV events travel from worker to router: `zmq` or `nats`.",
    )
    sidecar: bool | None = Field(default=None, description="Default of `roles.*.sidecar`.")
    sidecar_args: SidecarArgs = Field(
        default_factory=dict,
        description="Default of `roles.*.sidecar.args`; a role's mapping is laid over it, a role's list replaces it.",
        examples=[{"log-level": "debug"}],
    )
    sidecar_startup_timeout: Seconds | None = Field(
        default=None,
        description="Default of `roles.*.sidecar.startup_timeout`, in seconds.",
    )


class Infra(Strict):
    """etcd, and NATS where a plane uses it."""

    placement: Placement = Field(default_factory=Placement, description="Where etcd and NATS run.")
