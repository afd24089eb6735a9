"""The entry point: which frontend, how many, and what stands before them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from srtctl.reading.types import EnvTable, FlagTable
from srtctl.reading.validation import Strict
from srtctl.recipe.placement import Placement


class Frontend(Strict):
    """The OpenAI-compatible entry point and router."""

    type: Literal["dynamo", "sglang-router", "vllm-router", "sglang", "vllm", "trtllm_serve", "none"] = Field(
        default="dynamo",
        description="Kind of frontend: `dynamo`; an engine's own router, `sglang-router` or `vllm-router`; `sglang` or "
        "`vllm` (clients talk to the one worker itself); `trtllm_serve` (the same, or TensorRT-LLM's own server before "
        "prefill and decode); or `none`.",
    )
    placement: Placement = Field(default_factory=Placement, description="Where the frontend runs.")
    args: FlagTable = Field(
        default_factory=dict,
        description="Frontend flags without the dashes, as in `roles.*.args`.",
        examples=[{"router-mode": "kv", "router-temperature": 0.5}],
    )
    env: EnvTable = Field(default_factory=dict, description="Environment of the frontend process.")
    enable_multiple_frontends: Literal[False] = Field(
        default=False,
        description="Several frontends behind nginx are not built: only `false` is accepted.",
    )
