"""From a file to a Recipe, or to everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from srtctl.diagnostics import Diagnostic, Span, did_you_mean
from srtctl.reading.document import YamlDocument, read_yaml, with_source_text
from srtctl.reading.validation import explain_errors, shown
from srtctl.recipe import known, rules
from srtctl.recipe.convert import as_v2
from srtctl.recipe.dump import dump_resolved
from srtctl.recipe.model import Recipe
from srtctl.recipe.overrides import apply_overrides
from srtctl.recipe.sweep import Written, with_found
from srtctl.recipe.variants import expand, split_selector

__all__ = ["LoadedRecipe", "Variant", "dump_resolved", "load_recipe", "load_variants", "read_variants", "several"]

#: Variants named in one message.
SHOWN_NAMES = 12

# Tables whose values are text, where YAML may have read a number.
TEXT_TABLES = (
    "environment.*",
    "sbatch_directives.*",
    "benchmark.env.*",
    "identity.frameworks.*",
    "srun_options.*",
    "frontend.env.*",
    "dynamo.source.*",
    "roles.*.env.*",
    "roles.*.srun_options.*",
)


@dataclass(frozen=True, slots=True)
class LoadedRecipe:
    """A recipe with its source. `recipe` is None exactly when `diagnostics` holds an error; they are in file order."""

    recipe: Recipe | None
    document: YamlDocument
    diagnostics: list[Diagnostic]

    def span(self, path: str, *, key: bool = False) -> Span | None:
        """Where the value at the dotted `path` stands, or its key; the nearest parent's key where the file has none."""
        return self.document.span(self.document.find(path), key=key)


@dataclass(frozen=True, slots=True)
class Variant:
    """One recipe of a file; `name` selects it (`file.yaml:name`), and is "" where the file holds one."""

    name: str
    loaded: LoadedRecipe


def load_recipe(
    path: Path | str, *, overrides: Sequence[str] = (), unset: Sequence[str] = (), allow_unsupported: bool = False
) -> LoadedRecipe:
    """Read, override and validate the recipe at `path`; never raises for what is in the file or the options.

    `path` may select a variant (`file.yaml:name`); a file with several, without a selector, is an error that lists them.
    `overrides` are `path=value` texts (`--set`), `unset` dotted paths (`--unset`), both in the v2 layout. With
    `allow_unsupported` what is known but not built is a warning and left out.
    """
    found = read_variants(path)
    if len(found) > 1:
        return LoadedRecipe(None, found[0].document, [several(path, [item.name for item in found])])
    return _load(found[0].document, overrides, unset, allow_unsupported)


def load_variants(
    path: Path | str, *, overrides: Sequence[str] = (), unset: Sequence[str] = (), allow_unsupported: bool = False
) -> list[Variant]:
    """Every recipe that `path`, with or without a selector, means: at least one. Arguments as in `load_recipe`."""
    return [
        Variant(item.name, _load(item.document, overrides, unset, allow_unsupported)) for item in read_variants(path)
    ]


def read_variants(path: Path | str) -> list[Written]:
    """What `path` holds, each recipe in the v2 layout and not yet validated; at least one, with the reasons if it is none."""
    file, select = split_selector(path)
    document = read_yaml(file)
    if not document.read:
        return [Written("", "", document)]
    if chosen := expand(document, select):
        return [replace(item, document=as_v2(item.document)) for item in chosen]
    names = [item.name for item in expand(document) if item.name]
    if names:
        message, hint = f"{file} has no variant `{select}`", did_you_mean(select, names) or f"it has {_listed(names)}"
    else:
        message, hint = f"{file} has no variant `{select}`: it is one recipe", f"name it without `:{select}`"
    return [Written("", "", with_found(document, [Diagnostic("variants/unknown", message, hint=hint)]))]


def several(path: Path | str, names: Sequence[str]) -> Diagnostic:
    """What to say where one recipe was asked for and the file has these."""
    message = f"{path} holds {len(names)} variants: {_listed(names)}"
    return Diagnostic("variants/several", message, hint=f"name one: `{split_selector(path)[0]}:{names[0]}`")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN_NAMES]) + ", …" * (len(names) > SHOWN_NAMES)


def _load(
    document: YamlDocument, overrides: Sequence[str], unset: Sequence[str], allow_unsupported: bool
) -> LoadedRecipe:
    if not document.read or any(d.code.startswith("variants/") and d.severity == "error" for d in document.diagnostics):
        return LoadedRecipe(None, document, list(document.diagnostics))
    document = apply_overrides(document, overrides, unset)
    if not isinstance(document.data, dict):
        message = f"a recipe is a mapping, not {shown(document.data)}"
        refused = Diagnostic("recipe/type", message, span=document.span(), hint="begin with `schema: 2`")
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


def _in_order(found: list[Diagnostic], main: str) -> list[Diagnostic]:
    """By place, the recipe file first; a value that could not be read is not reported again for being empty."""
    unread = {item.span for item in found if item.code.startswith("yaml/") and item.span}
    kept = [item for item in found if item.code.startswith("yaml/") or item.span not in unread]

    def place(item: Diagnostic) -> tuple[bool, bool, str, int, int]:
        span = item.span or Span("", 0, 0)
        return item.span is None, span.file != main, span.file, span.line, span.column

    return sorted(kept, key=place)
