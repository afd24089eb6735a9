"""What is mounted into containers, as recipe and cluster profile may write it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator

from srtctl.reading.validation import refuse, shown

#: Sources that are no path: a fresh tmpfs, or something that the runtime mounts by itself and that is taken away (enroot).
SPECIAL_SOURCES = ("tmpfs", "umount")


def mounts(value: Any) -> Any:
    """A mapping of source to target, or a list of `SOURCE:TARGET[:OPTIONS]`, as that list; `SOURCE` alone is mounted in place."""
    if isinstance(value, Mapping):
        value = [f"{source}:{target}" for source, target in value.items()]
    if not isinstance(value, list):
        raise refuse("type", f"must be a mapping of source to target, or a list, not {shown(value)}")
    return list(_mounts(value))


def _mounts(entries: list[Any]) -> Iterator[str]:
    form = "write SOURCE:TARGET or SOURCE:TARGET:OPTIONS"
    for entry in entries:
        if not isinstance(entry, str):
            raise refuse("type", f"must hold texts, not {shown(entry)}", form)
        source, _, rest = entry.partition(":")
        target = rest.partition(":")[0] or source
        if not source:
            raise refuse("value", f"holds {shown(entry)}, which has no source", form)
        if not target.startswith("/"):
            raise refuse("value", f"holds {shown(entry)}, whose target is no absolute path", form)
        if any(c == "," or c.isspace() for c in entry):
            hint = "these separate mounts from each other; options are joined by `+`"
            raise refuse("value", f"holds {shown(entry)}, with a comma, a blank or a line break", hint)
        yield entry if rest else f"{source}:{source}"


Mounts = Annotated[list[str], BeforeValidator(mounts, json_schema_input_type=dict[str, str] | list[str])]
