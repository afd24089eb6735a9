"""Rules that tie several keys of a recipe together. They look at plain data, so that they hold beside other errors."""

from __future__ import annotations

from collections.abc import Iterator

from srtctl.diagnostics import Diagnostic
from srtctl.reading.build import KeyPath
from srtctl.reading.document import YamlDocument, dotted, value_at
from srtctl.recipe.model import ROLE_NAMES

FLAG_TABLES: tuple[KeyPath, ...] = (
    ("frontend", "args"),
    ("dynamo", "sidecar_args"),
    *(("roles", name, "args") for name in ROLE_NAMES),
    *(("roles", name, "sidecar", "args") for name in ROLE_NAMES),
)


def check(document: YamlDocument) -> list[Diagnostic]:
    """Every broken rule in `document.data`."""
    found = [*_roles(document), *_colocate(document)]
    for path in FLAG_TABLES:
        found += _flag_twice(document, path)
    return found


def _roles(document: YamlDocument) -> Iterator[Diagnostic]:
    roles = value_at(document.data, ("roles",))
    if not isinstance(roles, dict):
        return
    given = [name for name in ROLE_NAMES if roles.get(name) is not None]
    both = "prefill and decode go together, agg stands alone"
    if not given and not set(roles) - set(ROLE_NAMES):
        yield _broken(document, ("roles",), "`roles` names no role", "give `agg`, or `prefill` and `decode`")
    elif "agg" in given and len(given) > 1:
        others = " and ".join(f"`{name}`" for name in given if name != "agg")
        yield _broken(document, ("roles", "agg"), f"`roles.agg` cannot stand beside {others}", both)
    elif given in (["prefill"], ["decode"]):
        other = "decode" if given == ["prefill"] else "prefill"
        yield _broken(document, ("roles", given[0]), f"`roles.{given[0]}` is given without `roles.{other}`", both)


def _colocate(document: YamlDocument) -> Iterator[Diagnostic]:
    for name in ("prefill", "agg"):
        path = ("roles", name, "nodes")
        if value_at(document.data, path) == "colocate":
            message, hint = (
                f"`{dotted(path)}` cannot be `colocate`",
                "only decode can share the prefill nodes: give a number",
            )
            yield _broken(document, path, message, hint, key=False)


def _flag_twice(document: YamlDocument, path: KeyPath) -> Iterator[Diagnostic]:
    table = value_at(document.data, path)
    seen: dict[str, str] = {}
    for flag in table if isinstance(table, dict) else ():
        first = seen.setdefault(flag.replace("_", "-"), flag)
        if first != flag:
            message = f"`{dotted((*path, flag))}` and `{first}` are the same flag"
            yield _broken(document, (*path, flag), message, "remove one of the two")


def _broken(document: YamlDocument, path: KeyPath, message: str, hint: str, *, key: bool = True) -> Diagnostic:
    return Diagnostic("recipe/rule", message, dotted(path), document.span(path, key=key), hint)
