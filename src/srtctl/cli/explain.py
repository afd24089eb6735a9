"""`srtctl explain`: what a key of the recipe or of the cluster profile means, and what it is now."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from srtctl.cli.common import ClusterOption, SetOption, UnsetOption
from srtctl.cli.exits import USAGE, fail
from srtctl.cli.located import Output, OutputOption

if TYPE_CHECKING:
    from srtctl.plan.explain import Explanation
    from srtctl.plan.origin import Setting
    from srtctl.reading.document import YamlDocument

# Columns: a longer name moves its text, a longer value is cut (`-o json` has all of it).
NAME_WIDTH = 32
VALUE_WIDTH = 100

_EFFECTS = {"applies": "now", "laid under": "over", "unused": "not used"}


def command(
    field: Annotated[
        str,
        typer.Argument(
            help="A key, dotted: `roles.decode.kv_events`, `cluster.model_paths`. Without it: all top-level keys.",
            metavar="[FIELD]",
            show_default=False,
        ),
    ] = "",
    recipe: Annotated[
        Path | None, typer.Option("--recipe", "-r", help="Also show what it is in this recipe.", metavar="FILE")
    ] = None,
    output: OutputOption = Output.text,
    cluster: ClusterOption = None,
    sets: SetOption = None,
    unset: UnsetOption = None,
) -> None:
    """Explain a key: meaning, type, default, examples, where else it is set; with a recipe, its value and origin."""
    from srtctl.plan.explain import UnknownFieldError, explain

    try:
        explained = explain(field)
    except UnknownFieldError as error:
        fail(error.message, error.hint, USAGE)
    settings = _settings(explained.path, recipe, cluster, sets or [], unset or [])
    if output is Output.json:
        now = {} if settings is None else {"settings": [item.as_dict() for item in settings]}
        typer.echo(json.dumps(explained.as_dict() | now, indent=2, ensure_ascii=False))
    else:
        typer.echo("\n".join(_lines(explained, settings)))


def _settings(
    field: str, recipe: Path | None, cluster: str | None, sets: list[str], unset: list[str]
) -> list[Setting] | None:
    """Where `field` is set; None when no file was named and it is no key of the profile. Exits 2 for unreadable files."""
    from srtctl.cli.diagnostics import print_diagnostics
    from srtctl.cluster.load import find_profile
    from srtctl.plan.origin import settings
    from srtctl.reading.document import read_yaml
    from srtctl.recipe.overrides import apply_overrides

    about_profile = field.startswith("cluster.")
    if (sets or unset) and recipe is None:
        fail("--set and --unset change a recipe, but none is named", "name it with --recipe", USAGE)
    if field in ("", "cluster") or (recipe is None and not about_profile):
        return None
    path = find_profile(cluster, Path.cwd(), os.environ)
    profile = read_yaml(path) if path else None
    written = apply_overrides(_written(recipe), sets, unset) if recipe else None
    if found := [item for document in (written, profile) if document for item in document.diagnostics]:
        print_diagnostics(found)
        raise typer.Exit(USAGE)
    return settings(field, written, profile)


def _written(recipe: Path) -> YamlDocument:
    """The one recipe that is meant, in the v2 layout. Exits 2 where there are several."""
    from srtctl.recipe.load import read_variants, several

    found = read_variants(recipe)
    if len(found) > 1:
        said = several(recipe, [item.name for item in found])
        fail(said.message, said.hint, USAGE)
    return found[0].document


def _lines(explained: Explanation, settings: list[Setting] | None) -> list[str]:
    from srtctl.reading.describe import flow

    if explained.not_built:
        return [explained.path, f"  Known, but not built yet: {explained.not_built}."]
    rows: list[tuple[str, str]] = []
    if explained.default or explained.required:
        rows += [("type", explained.type), ("default", explained.default or "none: it must be given")]
    rows += [("example", flow(value)) for value in explained.examples]
    rows += [("also", place) for place in explained.elsewhere]
    if settings is not None and not settings:
        rows.append(("now", "missing" if explained.required else "the default"))
    rows += [(_EFFECTS[item.effect], _setting(item, explained.path)) for item in settings or ()]
    lines = [*([explained.path] if explained.path else []), f"  {explained.doc}"]
    lines += [f"  {label:<8}  {text}" for label, text in rows]
    for title, keys in (("keys", explained.keys), ("known, but not built yet", explained.later)):
        width = min(max((len(key.name) for key in keys), default=0), NAME_WIDTH)
        lines += [f"  {title}"] * bool(keys)
        lines += [f"    {key.name:<{width}}  {key.doc}" for key in keys]
    return lines


def _setting(item: Setting, field: str) -> str:
    """`true (recipe.yaml:12:16)`; with the key that sets it where that is another."""
    from srtctl.cli.diagnostics import place_text
    from srtctl.reading.describe import flow

    value = flow(item.value) if isinstance(item.value, dict | list) or item.value is None else item.text
    short = value if len(value) <= VALUE_WIDTH else f"{value[: VALUE_WIDTH - 1]}…"
    other = "" if item.path == field else f"`{item.path}`, "
    return f"{short} ({other}{place_text(item.span)})"
