"""What srtctl knows of the recipe vocabulary but does not build yet, and where the keys of the v1 layout went.

A key here is an error with its reason; with `--allow-unsupported` it is a warning and the recipe is read without it.
Building one means: remove its row, add its field to `model`.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from srtctl.diagnostics import Diagnostic, nearest
from srtctl.reading.build import KeyPath
from srtctl.reading.document import YamlDocument, dotted, matches
from srtctl.reading.fields import known_keys, owners
from srtctl.recipe.model import ROLE_NAMES, Recipe


@dataclass(frozen=True, slots=True)
class NotBuilt:
    """One row: keys that match `pattern` (`*` within one level) and whose value is one of `values` (empty: any value).

    `drop` names what is left out with --allow-unsupported, if not the key itself. `unless_off`: a table that is empty or
    says `enabled: false` asks for nothing.
    """

    pattern: str
    reason: str
    values: tuple[Any, ...] = ()
    drop: str = ""
    unless_off: bool = False

    @property
    def whole(self) -> bool:
        """Whether no value of the key is built."""
        return not self.values and not self.unless_off

    def applies(self, value: Any) -> bool:
        """Whether `value`, at a path that fits, is what is not built."""
        if self.unless_off and (value in (None, {}) or (isinstance(value, dict) and value.get("enabled") is False)):
            return False
        return not self.values or any(value == listed and type(value) is type(listed) for listed in self.values)


NOT_BUILT: tuple[NotBuilt, ...] = (
    NotBuilt("roles.*.engine", "one engine serves every role"),
    NotBuilt("roles.*.container", "every role uses `model.container`"),
    NotBuilt("roles.*.critical", "the first failure of any process ends the job"),
    NotBuilt("roles.*.restart", "the first failure of any process ends the job"),
    NotBuilt("resources.het_jobs", "heterogeneous jobs schedule badly and complicate node order", (True,)),
    NotBuilt("dynamo.sidecar_port", "sidecars get claimed ports"),
    NotBuilt("post_eval", "an evaluation after the benchmark", unless_off=True),
    NotBuilt("reporting", "sending results elsewhere", unless_off=True),
    NotBuilt("profiling.type", "no profiler is attached to the engines", ("torch", "nsys"), "profiling"),
    NotBuilt("telemetry", "metrics collection", unless_off=True),
    NotBuilt("observability", "metrics collection", unless_off=True),
)  # fmt: skip

_V1_TABLE = {
    "prefill_environment": "roles.prefill.env",
    "decode_environment": "roles.decode.env",
    "aggregated_environment": "roles.agg.env",
    "kv_events_config": "roles.*.kv_events",
    "type": "engine",
}
MOVED: dict[str, str] = {
    "backend": "`engine` and `roles`",
    **{f"backend.{old}": f"`{new}`" for old, new in _V1_TABLE.items()},
    **{f"resources.{role}_{key}": f"`roles.{role}.{key}`" for role in ROLE_NAMES for key in ("nodes", "workers")},
    **{f"resources.gpus_per_{role}": f"`roles.{role}.gpus`" for role in ROLE_NAMES},
    **{f"dynamo.{key}": "`dynamo.source`" for key in ("version", "hash", "wheel", "top_of_tree")},
}


def key_hint(path: KeyPath) -> str:
    """What to say about an unknown key beyond its neighbours: a v1 key's new place, an engine flag outside `args`."""
    if new := MOVED.get(dotted(path)):
        return f"this is the v1 layout; in v2 it is {new}"
    if len(path) == 3 and path[0] == "roles" and path[1] in ROLE_NAMES:
        name = str(path[2])
        if not nearest(name, known_keys(Recipe, path[:2])) and not owners(Recipe, name):
            return f"engine flags go into `{dotted(path[:2])}.args`"
    return ""


def sift(document: YamlDocument, data: Any, *, allow_unsupported: bool) -> tuple[Any, list[Diagnostic]]:
    """`data` without what is not built, and a Diagnostic for each such key (a warning where it may be left out)."""
    kept, found = copy.deepcopy(data), []
    for row in NOT_BUILT:
        for path, value in list(matches(kept, row.pattern)):
            if not row.applies(value):
                continue
            found.append(_diagnostic(row, path, value, document, allow_unsupported))
            _remove(kept, tuple(row.drop.split(".")) if row.drop else path)
    return kept, found


def _diagnostic(row: NotBuilt, path: KeyPath, value: Any, document: YamlDocument, allowed: bool) -> Diagnostic:
    subject = f"`{dotted(path)}`" + (f" {value}" if row.values and isinstance(value, str) else "")
    span = document.span(path, key=not row.values)
    if allowed:
        left_out = f"`{row.drop}`" if row.drop else "it"
        message = f"{subject} is known but not built yet, {left_out} is left out: {row.reason}"
        return Diagnostic("recipe/not-built", message, dotted(path), span, severity="warning")
    hint = "remove it, or pass --allow-unsupported to go on without it"
    return Diagnostic(
        "recipe/not-built", f"{subject} is known but not built yet: {row.reason}", dotted(path), span, hint
    )


def _remove(data: Any, path: KeyPath) -> None:
    """Remove what is at `path`; nothing happens where an earlier row removed it already."""
    for part in path[:-1]:
        data = data.get(part, {})
    data.pop(path[-1], None)
