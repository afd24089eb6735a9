"""From a file to a Recipe, or to everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from pydantic import ValidationError

from srtctl.diagnostics import Diagnostic, Span
from srtctl.reading.document import YamlDocument, read_yaml, with_source_text
from srtctl.reading.validation import explain_errors, shown
from srtctl.recipe import known, rules
from srtctl.recipe.dump import dump_resolved
from srtctl.recipe.model import Recipe
from srtctl.recipe.overrides import apply_overrides

__all__ = ["LoadedRecipe", "dump_resolved", "load_recipe"]

# Tables whose values are text, where YAML may have read a number.
TEXT_TABLES = ("environment.*", "sbatch_directives.*", "frontend.env.*", "roles.*.env.*")


@dataclass(frozen=True, slots=True)
class LoadedRecipe:
    """A recipe with its source. `recipe` is None exactly when `diagnostics` holds an error; they are in file order."""

    recipe: Recipe | None
    document: YamlDocument
    diagnostics: list[Diagnostic]

    def span(self, path: str, *, key: bool = False) -> Span | None:
        """Where the value at the dotted `path` stands, or its key; the nearest parent's key where the file has none."""
        return self.document.span(self.document.find(path), key=key)


def load_recipe(
    path: Path | str, *, overrides: Sequence[str] = (), unset: Sequence[str] = (), allow_unsupported: bool = False
) -> LoadedRecipe:
    """Read, override and validate the recipe at `path`; never raises for what is in the file or the options.

    `overrides` are `path=value` texts (`--set`), `unset` dotted paths (`--unset`). With `allow_unsupported` what is
    known but not built is a warning and left out.
    """
    document = read_yaml(path)
    if not document.read:
        return LoadedRecipe(None, document, list(document.diagnostics))
    document = apply_overrides(document, overrides, unset)
    if refused := _other_layout(document):
        return LoadedRecipe(None, document, [*document.diagnostics, refused])
    data, not_built = known.sift(document, with_source_text(document, TEXT_TABLES), allow_unsupported=allow_unsupported)
    sifted = replace(document, data=data)
    found = [*document.diagnostics, *not_built, *rules.check(sifted)]
    recipe = None
    try:
        recipe = Recipe.model_validate(data)
    except ValidationError as error:
        found += explain_errors(error, "recipe", Recipe, sifted, known.key_hint)
    found = _in_order(found, document.file)
    failed = any(item.severity == "error" for item in found)
    return LoadedRecipe(None if failed else recipe, document, found)


def _other_layout(document: YamlDocument) -> Diagnostic | None:
    """Why this is no v2 recipe at all, so that checking it key by key would only bury the reason."""
    data = document.data
    start = document.span()
    if not isinstance(data, dict):
        return Diagnostic(
            "recipe/type", f"a recipe is a mapping, not {shown(data)}", span=start, hint="begin with `schema: 2`"
        )
    inner = data["base"] if isinstance(data.get("base"), dict) else data
    if "schema" not in data and "backend" in inner:
        at = document.span(document.find("base.backend" if inner is not data else "backend"), key=True)
        message = "this is a v1 recipe (no `schema`, a `backend`): not supported yet"
        return Diagnostic(
            "recipe/v1", message, "backend", at, "write it in the v2 layout: `schema: 2`, `engine`, `roles`"
        )
    for key in data:
        if any(fnmatchcase(key, pattern) for pattern in known.VARIANT_KEYS):
            message = f"`{key}` is known but not built yet: a file holds one recipe, without variants"
            at = document.span((key,), key=True)
            return Diagnostic(
                "recipe/not-built", message, key, at, "write each variant to a file of its own, or use --set"
            )
    return None


def _in_order(found: list[Diagnostic], main: str) -> list[Diagnostic]:
    """By place, the recipe file first; a value that could not be read is not reported again for being empty."""
    unread = {item.span for item in found if item.code.startswith("yaml/") and item.span}
    kept = [item for item in found if item.code.startswith("yaml/") or item.span not in unread]

    def place(item: Diagnostic) -> tuple[bool, bool, str, int, int]:
        span = item.span or Span("", 0, 0)
        return item.span is None, span.file != main, span.file, span.line, span.column

    return sorted(kept, key=place)
