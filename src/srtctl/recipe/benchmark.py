"""What is run against the deployment once it serves."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from srtctl.reading.validation import Strict
from srtctl.recipe.placement import Placement


class Benchmark(Strict):
    """What is run against the deployment once it serves."""

    type: Literal["manual"] = Field(
        default="manual",
        description="`manual`: serve until the job is cancelled or its time is over.",
    )
    placement: Placement = Field(
        default_factory=Placement,
        description="Where the load comes from; `dedicated` reserves a node for it.",
    )
