"""Dynamo: transports, installation and sidecar defaults; and the infrastructure it needs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from srtctl.reading.types import Seconds, Text
from srtctl.reading.validation import Strict, refuse
from srtctl.recipe.inputs import SidecarArgs
from srtctl.recipe.placement import Placement

#: The release that srtctl is written for and tested with.
TESTED_DYNAMO = "1.6.1"


class DynamoSource(Strict):
    """Where Dynamo comes from: one of `pypi`, `wheel`, or `git` with `rev`."""

    pypi: Text | None = Field(default=None, description="A release of the package index.", examples=[TESTED_DYNAMO])
    wheel: Text | None = Field(
        default=None,
        description="A version whose wheels lie in `wheelhouse/dynamo` beside the cluster profile, or the path of "
        "ai-dynamo's wheel in the container, with that of ai-dynamo-runtime beside it.",
        examples=["1.6.1.dev20260801", "/configs/ai_dynamo-1.6.1-py3-none-any.whl"],
    )
    git: Text | None = Field(default=None, description="A repository to build from; goes with `rev`.")
    rev: Text | None = Field(default=None, description="The commit, tag or branch of `git`.")

    @model_validator(mode="after")
    def _one(self) -> DynamoSource:
        given = [name for name in ("pypi", "wheel", "git") if getattr(self, name) is not None]
        if len(given) != 1:
            several = f"names {' and '.join(f'`{name}`' for name in given)}" if given else "names no source"
            raise refuse("value", several, "give one of `pypi`, `wheel`, or `git` with `rev`")
        if (self.git is None) is not (self.rev is None):
            raise refuse("value", "must give `git` and `rev` together", "`rev` is a commit, tag or branch of `git`")
        return self


class Dynamo(Strict):
    """Dynamo's transports, and the defaults of the roles' sidecars."""

    install: bool | None = Field(
        default=None,
        description="Install Dynamo into the containers of frontend and workers before they start; default: where "
        "`source` is given.",
    )
    source: DynamoSource | None = Field(
        default=None,
        description=f"Which Dynamo is installed; default, where `install` is true: {TESTED_DYNAMO} from the package index.",
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
    direct_dispatch: bool = Field(
        default=False,
        description="Default of `roles.*.direct_dispatch`: whether the frontend sends requests to the engines' own gRPC "
        "servers, past the sidecars. No released Dynamo can (ai-dynamo 1.6.1 cannot).",
    )
    sidecar_binary: str | None = Field(
        default=None,
        min_length=1,
        description="Default of `roles.*.sidecar.binary`.",
        examples=["dynamo-openengine-sidecar"],
    )
    sidecar_startup_timeout: Seconds | None = Field(
        default=None,
        description="Default of `roles.*.sidecar.startup_timeout`, in seconds.",
    )

    @property
    def installed_source(self) -> DynamoSource | None:
        """What is to be installed; None where the image's own Dynamo is used."""
        wanted = self.source is not None if self.install is None else self.install
        return (self.source or DynamoSource(pypi=TESTED_DYNAMO)) if wanted else None


class Infra(Strict):
    """etcd, and NATS where a plane uses it."""

    placement: Placement = Field(default_factory=Placement, description="Where etcd and NATS run.")
    # nats-server 2.9 refuses a limit above its `max_pending`, which is 64 MiB.
    nats_max_payload_mb: Annotated[int, Field(ge=1, le=64)] | None = Field(
        default=None,
        description="Largest message that NATS takes, in MiB; its default is 1. Prompts travel in messages where "
        "`dynamo.request_plane` is `nats`.",
    )
