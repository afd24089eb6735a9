"""The recipe, layout v2, as typed and frozen data. A field's description is its documentation (schema, hints, docs).

What a user may leave out has its default here; what is known but not built yet is in `known`, never here.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from srtctl.reading.mounts import Mounts
from srtctl.reading.types import EnvTable, SbatchTable, SlurmTime, SrunTable, Text
from srtctl.reading.validation import Strict
from srtctl.recipe import inputs
from srtctl.recipe.arguments import Arguments
from srtctl.recipe.benchmark import Benchmark
from srtctl.recipe.checks import Checks, CheckSetting
from srtctl.recipe.dynamo import Dynamo, Infra
from srtctl.recipe.engines import extend_schema
from srtctl.recipe.frontend import Frontend
from srtctl.recipe.placement import Placement
from srtctl.recipe.record import Identity, NoProfiling, Off, Unbuilt, Unprofiled
from srtctl.recipe.roles import ROLE_NAMES, KvEvents, Role, RoleName, Roles, Sidecar
from srtctl.recipe.services import ExtraService

__all__ = [
    "Benchmark",
    "CheckSetting",
    "Checks",
    "Dynamo",
    "Engine",
    "ExtraService",
    "Frontend",
    "HealthCheck",
    "Identity",
    "Infra",
    "KvEvents",
    "Model",
    "Placement",
    "ROLE_NAMES",
    "Recipe",
    "Resources",
    "Role",
    "RoleName",
    "Roles",
    "Sidecar",
    "Slurm",
]


class Model(Strict):
    """What is served, and from which image."""

    path: str = Field(
        min_length=1,
        description="Model weights: a name from the cluster profile's `model_paths`, an absolute path, or "
        "`hf:org/name`.",
        examples=["qwen3-0.6b", "/models/Qwen3-0.6B", "hf:Qwen/Qwen3-0.6B"],
    )
    container: str = Field(
        min_length=1,
        description="Image of the engine: a name from the cluster profile's `containers`, a .sqsh file, or an image "
        "URI.",
        examples=["sglang", "/images/sglang.sqsh"],
    )
    precision: str | None = Field(
        default=None,
        description="Label such as `fp8` or `fp4`, kept in the plan; it changes no flag.",
    )


class Resources(Strict):
    """The nodes a run asks for. What is left out comes from the cluster profile."""

    gpu_type: str | None = Field(
        default=None,
        description="GPU model, for example `h100` or `gb300`; default: the cluster profile's `default_gpu_type`.",
    )
    gpus_per_node: int | None = Field(
        default=None,
        ge=1,
        description="GPUs of one node; default: the cluster profile's `gpus_per_node`.",
    )
    port_offset: int = Field(
        default=0,
        ge=0,
        description="Added to the first port of every family: keeps two jobs apart that share nodes.",
    )
    spread_workers: bool = Field(
        default=False,
        description="Put each worker on a node of its own, even where several would fit on one.",
    )
    het_jobs: Literal[False] | None = Field(
        default=None,
        description="Heterogeneous Slurm jobs: not built, only `false` or null is accepted.",
    )


class Slurm(Strict):
    """How the job is submitted. What is left out comes from the cluster profile, then from Slurm's own defaults."""

    account: str | None = Field(
        default=None,
        min_length=1,
        description="Slurm account; default: the cluster profile's `default_account`.",
    )
    partition: str | None = Field(
        default=None,
        min_length=1,
        description="Slurm partition; default: the cluster profile's `default_partition`.",
    )
    time_limit: SlurmTime | None = Field(
        default=None,
        description="Longest run time, as Slurm reads it: `HH:MM:SS`, `D-HH:MM:SS`, or minutes as quoted text; "
        "default: the cluster profile's `default_time_limit`.",
        examples=["04:00:00", "1-12:00:00"],
    )


class Engine(Strict):
    """The engine of every role, and the launcher's settings that only this engine has (its knobs, beside `type`)."""

    model_config = ConfigDict(extra="allow", json_schema_extra=extend_schema)

    type: Literal["sglang", "vllm", "trtllm", "mocker"] = Field(
        description="Engine: `sglang`, `vllm`, `trtllm`, or `mocker`, which has no model."
    )

    @property
    def knobs(self) -> dict[str, Any]:
        """The engine's knobs as written; its backend says which it knows. Command-line flags are `roles.*.args`."""
        return dict(self.model_extra or {})


class HealthCheck(Strict):
    """How long the job waits until every planned worker has registered: attempts times interval."""

    max_attempts: int = Field(
        default=180, ge=1, description="How often readiness is asked for before the job gives up."
    )
    interval_seconds: int = Field(default=10, ge=1, description="Seconds between two attempts.")

    @property
    def seconds(self) -> int:
        """The whole wait, in seconds."""
        return self.max_attempts * self.interval_seconds


class Recipe(Strict):
    """One deployment, as its author wrote it, with the defaults of the recipe layout filled in."""

    schema_version: Literal[2] = Field(alias="schema", description="Version of the recipe layout: 2.")
    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,126}$",
        description="Run name: letters, digits, `.`, `_` and `-`, at most 127 characters, a letter or digit first.",
    )
    model: Model = Field(description="What is served: `path` and `container`.")
    resources: Resources = Field(default_factory=Resources, description="The nodes a run asks for.")
    slurm: Slurm = Field(default_factory=Slurm, description="Account, partition and time limit of the job.")
    engine: Annotated[
        Engine,
        BeforeValidator(inputs.engine, json_schema_input_type=Literal["sglang", "vllm", "trtllm", "mocker"] | Engine),
    ] = Field(
        description="Engine of every role: `sglang`, `vllm`, `trtllm` or `mocker`, or a mapping of `type` and its knobs.",
        examples=["sglang", {"type": "vllm", "connector": "nixl"}],
    )
    role_table: Roles = Field(alias="roles", description="The workers: `agg`, or `prefill` and `decode`.")
    dynamo: Dynamo = Field(default_factory=Dynamo, description="Dynamo's transports and sidecar defaults.")
    infra: Infra = Field(default_factory=Infra, description="etcd and NATS.")
    frontend: Frontend = Field(default_factory=Frontend, description="Entry point and router.")
    benchmark: Benchmark = Field(default_factory=Benchmark, description="What is run against the deployment.")
    health_check: HealthCheck = Field(default_factory=HealthCheck, description="How long to wait for readiness.")
    check_table: Annotated[Checks, BeforeValidator(inputs.checks, json_schema_input_type=bool | Checks)] = Field(
        default_factory=Checks,
        alias="checks",
        description="Post-launch checks: false for none, or a mapping of check name to true, false, `warn`, `fail` "
        "or a mapping.",
        examples=[False, {"kv_events": "warn", "registration": {"timeout": 60}}],
    )
    environment: EnvTable = Field(
        default_factory=dict,
        description="Environment of every process of the run: engines, sidecars, frontends, services.",
        examples=[{"HF_HUB_OFFLINE": "1"}],
    )
    sbatch_directives: SbatchTable = Field(
        default_factory=dict,
        description="Further #SBATCH options without the dashes; null is an option without a value.",
        examples=[{"reservation": "demo", "requeue": None}],
    )

    srun_options: SrunTable = Field(
        default_factory=dict,
        description="Further options of `srun` for every worker, without the dashes; null is an option without a value.",
        examples=[{"mem": "0", "container-remap-root": None}],
    )
    container_mounts: Mounts = Field(
        default_factory=list,
        description="What containers see beside the model and the run: a mapping of source to target, or a list of "
        "`SOURCE:TARGET[:OPTIONS]`. A relative source begins at the cluster profile's folder.",
        examples=[{"/shared/cache": "/cache"}, ["/data:/data:ro", "tmpfs:/dev/shm:size=100%"]],
    )
    extra_mount: Mounts = Field(
        default_factory=list,
        description="As `container_mounts`, which win where both mount at one target.",
        examples=[["/data:/data:ro"]],
    )
    setup_script: Text | None = Field(
        default=None,
        description="A bash script that runs on each node of a worker, in its container, before its processes start: "
        "one in `configs/` beside the cluster profile, or an absolute path.",
        examples=["install-deps.sh"],
    )

    services: list[ExtraService] = Field(
        default_factory=list,
        description="Extra processes beside the deployment, in the order they start.",
        examples=[[{"name": "exporter", "command": ["exporter", "--port", "{port}"], "port": "auto"}]],
    )
    identity: Identity = Field(
        default_factory=Identity, description="What model, image and frameworks are meant to be, for the record."
    )
    enable_config_dump: bool = Field(
        default=True, description="Changes nothing: the bundle of every run holds every setting as it runs."
    )
    profiling: Unprofiled = Field(default_factory=NoProfiling, description="Profiler windows: not built.")
    post_eval: Unbuilt = Field(default_factory=Off, description="An evaluation after the benchmark: not built.")
    reporting: Unbuilt = Field(default_factory=Off, description="Sending results elsewhere: not built.")
    telemetry: Unbuilt = Field(default_factory=Off, description="Metrics collection: not built.")
    observability: Unbuilt = Field(default_factory=Off, description="Metrics collection: not built.")

    @model_validator(mode="before")
    @classmethod
    def _sidecar_defaults(cls, data: Any) -> Any:
        return inputs.with_sidecar_defaults(data)

    @cached_property
    def roles(self) -> dict[str, Role]:
        """The roles of this recipe, in the order prefill, decode, agg."""
        table: dict[RoleName, Role | None] = {name: getattr(self.role_table, name) for name in ROLE_NAMES}
        return {name: role for name, role in table.items() if role is not None}

    @cached_property
    def arguments(self) -> dict[str, Arguments]:
        """The engine arguments of each role."""
        return {name: Arguments(f"roles.{name}.args", role.args) for name, role in self.roles.items()}

    @property
    def checks(self) -> dict[str, CheckSetting]:
        """Every post-launch check and its setting, in the order they run."""
        return {name: getattr(self.check_table, name) for name in Checks.model_fields}
