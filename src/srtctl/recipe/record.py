"""Keys that say what a deployment is, or ask for what srtctl does not do: they change no process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from srtctl.reading.types import EnvTable, Text
from srtctl.reading.validation import Strict


class ModelIdentity(Strict):
    """Which model it is."""

    repo: Text | None = Field(default=None, description="Repository of the weights.")
    revision: Text | None = Field(default=None, description="Commit of that repository.")


class ContainerIdentity(Strict):
    """Which image it is."""

    image: Text | None = Field(default=None, description="The image, with its tag or digest.")


class Identity(Strict):
    """Labels of what is deployed; they change no process."""

    model: ModelIdentity = Field(default_factory=ModelIdentity, description="Repository and revision of the model.")
    container: ContainerIdentity = Field(default_factory=ContainerIdentity, description="The image.")
    frameworks: EnvTable = Field(
        default_factory=dict,
        description="Versions by name; the job's log says when the installed Dynamo is another one than `dynamo`.",
        examples=[{"dynamo": "1.6.1", "sglang": "0.5.11"}],
    )

    @property
    def table(self) -> dict[str, dict[str, str]]:
        """What is given, as plain tables."""
        tables = {
            "model": self.model.model_dump(exclude_none=True),
            "container": self.container.model_dump(exclude_none=True),
            "frameworks": dict(self.frameworks),
        }
        return {name: table for name, table in tables.items() if table}


class Off(Strict):
    """What is not built, switched off."""

    enabled: Literal[False] = Field(default=False, description="Only `false`.")


class NoProfiling(Strict):
    """What is not built, switched off."""

    type: Literal["none"] = Field(default="none", description="Only `none`.")


def _off(value: Any) -> Any:
    """Nothing of a table that is switched off: what else it says changes nothing."""
    return {} if value is None or (isinstance(value, Mapping) and value.get("enabled") is False) else value


def _unprofiled(value: Any) -> Any:
    return {} if value is None or (isinstance(value, Mapping) and value.get("type") == "none") else value


Unbuilt = Annotated[Off, BeforeValidator(_off, json_schema_input_type=Off | None)]
Unprofiled = Annotated[NoProfiling, BeforeValidator(_unprofiled, json_schema_input_type=NoProfiling | None)]
