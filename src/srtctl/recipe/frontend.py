"""The entry point: which frontend, how many, and what stands before them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from srtctl.reading.types import EnvTable, FlagTable, Text
from srtctl.reading.validation import Strict
from srtctl.recipe.placement import Placement

# RFC 9110, 5.1, without what nginx leaves out of its variables' names.
HeaderName = Annotated[
    str, Field(pattern=r"^[A-Za-z][A-Za-z0-9-]*$", description="a header's name is letters, digits and `-`")
]


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
    enable_multiple_frontends: bool = Field(
        default=False,
        description="Several `dynamo` frontends behind nginx, one a node, from `placement` on over the workers' nodes.",
    )
    num_additional_frontends: Annotated[int, Field(ge=0)] = Field(
        default=9,
        description="How many frontends there are beside the first, as far as there are nodes for them.",
    )
    nginx_container: Text = Field(
        default="nginx:1.27.4",
        description="Container image of nginx: an alias of the cluster profile's `containers`, a path, or an image.",
    )
    nginx_raise_ulimit: bool = Field(
        default=False,
        description="Let nginx raise its limit of open files to 1048576, where the nodes allow it.",
    )
    nginx_session_affinity: bool = Field(
        default=False,
        description="All requests of a session go to the same frontend; those without one are spread.",
    )
    nginx_session_affinity_header: HeaderName = Field(
        default="X-Dynamo-Session-ID",
        description="The request header that names the session: letters, digits and `-`, a letter first.",
    )
