"""Where something runs that is not a worker."""

from __future__ import annotations

from pydantic import Field

from srtctl.reading.validation import Strict
from srtctl.recipe import inputs


class Placement(Strict):
    """Where something runs that is not a worker."""

    node: inputs.PlacedNode = Field(
        default=0,
        description="Node of the job, counted from 0, or `dedicated`: one more node, for this alone.",
    )
