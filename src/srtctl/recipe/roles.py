"""The roles of a recipe: how many workers of each kind, on how many nodes, with which flags."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from srtctl.reading.types import EnvTable, FlagTable, Seconds, SrunTable
from srtctl.reading.validation import Strict
from srtctl.recipe import inputs
from srtctl.recipe.inputs import SidecarArgs

RoleName = Literal["prefill", "decode", "agg"]
ROLE_NAMES: tuple[RoleName, ...] = ("prefill", "decode", "agg")


class KvEvents(Strict):
    """KV-cache events of one role, published by each data-parallel rank for KV-aware routing."""

    publisher: Literal["zmq"] = Field(default="zmq", description="How events are published: `zmq`.")
    topic: str = Field(default="kv-events", min_length=1, description="ZMQ topic of the events.")


class Sidecar(Strict):
    """Dynamo process beside each engine process that needs one; it registers the worker and relays its KV events."""

    kind: Literal["native", "openengine"] = Field(
        default="native",
        description="What engine and sidecar speak: `native`, the engine's own gRPC, with the sidecar made for it; or "
        "`openengine`, one protocol and one sidecar for every engine (TensorRT-LLM has no other).",
    )
    binary: str | None = Field(
        default=None,
        min_length=1,
        description="Program of the sidecar in the image; default: `dynamo.sidecar_binary`, else Dynamo's Python module "
        "for the engine, or `dynamo-openengine-sidecar`.",
        examples=["dynamo-openengine-sidecar", "/opt/dynamo/dynamo-sidecar"],
    )
    args: SidecarArgs = Field(
        default_factory=dict,
        description="Extra sidecar flags: a mapping as in `roles.*.args`, or a list of words passed as they are.",
        examples=[{"log-level": "debug"}, ["--log-level", "debug"]],
    )
    startup_timeout: Seconds | None = Field(
        default=None,
        description="Seconds the engine may take until its sidecar can connect; default: as long as the health "
        "check waits.",
    )


class Role(Strict):
    """The workers of one role."""

    nodes: inputs.Nodes = Field(
        description="Nodes all workers of this role take together, at least 1; on `decode` also `colocate`: share "
        "the prefill nodes.",
        examples=[2, "colocate"],
    )
    workers: int = Field(
        default=1,
        ge=1,
        description="Number of workers: engine instances, each registered once with the router.",
    )
    gpus: int | None = Field(
        default=None,
        ge=1,
        description="GPUs of one worker; default: the role's nodes times GPUs a node, divided by its workers.",
    )
    env: EnvTable = Field(
        default_factory=dict,
        description="Environment of this role's engine and sidecar processes. Values are text; numbers are taken as "
        "written.",
        examples=[{"NCCL_DEBUG": "INFO"}],
    )
    args: FlagTable = Field(
        default_factory=dict,
        description="Engine flags without the dashes, kebab or snake case. null or true is a switch, false leaves "
        "it out, a list gives several values, a mapping is passed as JSON.",
        examples=[{"tensor-parallel-size": 8, "trust-remote-code": True}],
    )
    kv_events: Annotated[
        KvEvents | None, BeforeValidator(inputs.switch, json_schema_input_type=bool | KvEvents | None)
    ] = Field(
        default=None,
        description="Publish KV-cache events: true, false, or a mapping of `publisher` and `topic`.",
        examples=[True, {"topic": "kv-events"}],
    )
    sidecar: Annotated[Sidecar | None, BeforeValidator(inputs.switch, json_schema_input_type=bool | Sidecar | None)] = (
        Field(
            default=None,
            description="Run the native engine server with a Dynamo sidecar: true, false, or a mapping of `kind`, "
            "`binary`, `args` and `startup_timeout`; default: `dynamo.sidecar`.",
            examples=[True, {"kind": "openengine"}, {"startup_timeout": 600}],
        )
    )
    srun_options: SrunTable = Field(
        default_factory=dict,
        description="Further options of `srun` for this role's workers, over those of the recipe; null is an option "
        "without a value.",
        examples=[{"mem": "0", "container-remap-root": None}],
    )
    direct_dispatch: Annotated[
        bool | list[int] | None,
        BeforeValidator(inputs.workers_or_all, json_schema_input_type=bool | list[inputs.WorkerNumber] | None),
    ] = Field(
        default=None,
        description="Workers whose engines the frontend calls directly: true, false, or a list of worker numbers, so "
        "that a fleet migrates one worker at a time; default: `dynamo.direct_dispatch`.",
        examples=[True, [0]],
    )


class Roles(Strict):
    """Either `agg`, or `prefill` and `decode`."""

    prefill: Role | None = Field(default=None, description="Workers that compute prompts; goes with `decode`.")
    decode: Role | None = Field(default=None, description="Workers that generate tokens; goes with `prefill`.")
    agg: Role | None = Field(default=None, description="Workers that do both; stands alone.")
