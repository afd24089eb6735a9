"""The recipe's `checks:`: which post-launch checks run, and what their failure does."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from srtctl.reading.types import Seconds
from srtctl.reading.validation import Strict
from srtctl.recipe import inputs


class CheckSetting(Strict):
    """One post-launch check."""

    enabled: bool = Field(default=True, description="Whether the check runs.")
    on_failure: Literal["fail", "warn"] = Field(
        default="fail",
        description="What a failed check does: `fail` ends the job with exit code 3, `warn` lets it serve.",
    )
    timeout: Seconds | None = Field(default=None, description="Seconds the check may take; default: the check's own.")

    @property
    def own(self) -> dict[str, int]:
        """The numbers that only this check has, by name."""
        return {name: getattr(self, name) for name in type(self).model_fields if name not in CheckSetting.model_fields}


class CacheReuseSetting(CheckSetting):
    """The check `cache_reuse`."""

    repeats: int = Field(default=28, ge=1, description="Requests that must hit the cache, over all targets together.")


class LoadSetting(CheckSetting):
    """The check `load`."""

    requests: int = Field(default=40, ge=1, description="Requests that must all succeed.")
    concurrency: int = Field(default=4, ge=1, description="Requests in flight at a time.")


Check = Annotated[
    CheckSetting,
    BeforeValidator(inputs.check_setting, json_schema_input_type=bool | Literal["warn", "fail"] | CheckSetting),
]
CacheReuseCheck = Annotated[
    CacheReuseSetting,
    BeforeValidator(inputs.check_setting, json_schema_input_type=bool | Literal["warn", "fail"] | CacheReuseSetting),
]
LoadCheck = Annotated[
    LoadSetting,
    BeforeValidator(inputs.check_setting, json_schema_input_type=bool | Literal["warn", "fail"] | LoadSetting),
]


class Checks(Strict):
    """What must be shown to work after the launch, before the run counts as serving."""

    placement: Check = Field(
        default_factory=CheckSetting,
        description="Every process runs on the node and the GPUs of the plan, and its planned ports listen.",
    )
    capabilities: Check = Field(
        default_factory=CheckSetting,
        description="Every engine that speaks OpenEngine reports what the plan needs: schema revision, role, model, KV "
        "events, handoff, LoRA, multimodal input.",
    )
    registration: Check = Field(
        default_factory=CheckSetting,
        description="Every planned worker is registered with the router, with every planned data-parallel rank.",
    )
    rank_routing: Check = Field(
        default_factory=CheckSetting,
        description="A request pinned to each data-parallel rank is answered by that rank.",
    )
    direct_dispatch: Check = Field(
        default_factory=CheckSetting,
        description="Requests reach the engines that are to be called directly from the frontend, and the others "
        "through their sidecars.",
    )
    publishers: Check = Field(
        default_factory=CheckSetting,
        description="Every planned KV publisher's socket sends well-formed batches of its own rank.",
    )
    kv_events: Check = Field(
        default_factory=CheckSetting,
        description="The Stored events of every planned KV publisher reach the router.",
    )
    cache_reuse: CacheReuseCheck = Field(
        default_factory=CacheReuseSetting,
        description="Repeated prompts without a pin hit the cache: `repeats` of them over all ranks.",
    )
    transfer: Check = Field(
        default_factory=CheckSetting,
        description="Prefill and decode: both legs of a request belong together, and the cache crosses between them.",
    )
    load: LoadCheck = Field(
        default_factory=LoadSetting,
        description="`requests` requests, `concurrency` at a time, all succeed and generate tokens.",
    )
