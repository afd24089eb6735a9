"""Field types that recipe and cluster profile share: environments, flag tables, Slurm's times and options."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from srtctl.reading.validation import refuse, shown

Text = Annotated[str, Field(min_length=1)]
Seconds = Annotated[int, Field(ge=1)]


def _text(value: Any) -> Any:
    """Numbers become text (the loader hands over their source text, `1.50` stays `1.50`)."""
    if isinstance(value, bool):
        hint = f'programs differ in how they spell it; quote the spelling you mean: "{shown(value)}" or "{int(value)}"'
        raise refuse("type", f"must be text, not the bool {shown(value)}", hint)
    if value is None:
        raise refuse("type", "must be text, not null", 'write "" for an empty value, or remove the line')
    if isinstance(value, int | float):
        return str(value)
    if not isinstance(value, str):
        raise refuse("type", f"must be text, not {shown(value)}", "quote it to pass it as it is")
    return value


def _text_or_null(value: Any) -> Any:
    return None if value is None else _text(value)


def as_tuple(value: Any) -> Any:
    """A list as the tuple that a frozen model holds."""
    return tuple(value) if isinstance(value, list) else value


# POSIX.1-2017, 8.1: what every shell can export.
EnvName = Annotated[
    str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="a name is letters, digits and `_`, no digit first")
]
EnvTable = dict[EnvName, Annotated[str, BeforeValidator(_text, json_schema_input_type=str | int | float)]]

OptionName = Annotated[
    str,
    Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]*$", description="write the option's name without the leading dashes"),
]
SbatchTable = dict[
    OptionName, Annotated[str | None, BeforeValidator(_text_or_null, json_schema_input_type=str | int | float | None)]
]


def _option(value: Any) -> Any:
    """Empty text too is an option without a value, as v1 writes it."""
    return _text_or_null(value) or None


SrunTable = dict[
    OptionName, Annotated[str | None, BeforeValidator(_option, json_schema_input_type=str | int | float | None)]
]
FlagTable = dict[OptionName, Any]

# sbatch(1), --time: minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]].
SlurmTime = Annotated[
    str,
    Field(pattern=r"^([0-9]+|[0-9]+:[0-9]{2}(:[0-9]{2})?|[0-9]+-[0-9]{1,2}(:[0-9]{2}){0,2}|UNLIMITED|INFINITE)$"),
]
