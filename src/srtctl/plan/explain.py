"""What a key of the recipe, or (as `cluster.…`) of the cluster profile, means: all of it said by the models themselves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from srtctl.cluster.load import NOT_BUILT as PROFILE_NOT_BUILT
from srtctl.cluster.model import ClusterProfile
from srtctl.diagnostics import nearest
from srtctl.plan.origin import CLUSTER, FALLBACKS, fits
from srtctl.reading.build import KeyPath
from srtctl.reading.describe import default_words, entry_words, is_table, type_words
from srtctl.reading.document import dotted
from srtctl.reading.fields import field_at, known_keys
from srtctl.reading.validation import unknown_hint
from srtctl.recipe.engines import described
from srtctl.recipe.known import NOT_BUILT, key_hint
from srtctl.recipe.model import Recipe
from srtctl.recipe.variants import KEYS as VARIANT_KEYS

_ENGINE = "engine"


class UnknownFieldError(LookupError):
    """There is no such key; `hint` says what was probably meant."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a mapping, and its documentation."""

    name: str
    doc: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """A key in words. `not_built` is the reason why a known key is not built yet; then nothing else is known of it.

    `later` names values and keys below it that are known but not built yet.
    """

    path: str
    doc: str = ""
    type: str = ""
    required: bool = False
    default: str = ""
    examples: tuple[Any, ...] = ()
    keys: tuple[Key, ...] = ()
    elsewhere: tuple[str, ...] = ()
    later: tuple[Key, ...] = ()
    not_built: str = ""

    def as_dict(self) -> dict[str, Any]:
        """As JSON-ready data; empty parts are left out."""
        return {name: value for name, value in asdict(self).items() if value not in ("", (), False) or name == "path"}


def explain(field: str) -> Explanation:
    """What the dotted `field` means; "" gives the top-level keys. Raises UnknownFieldError."""
    parts = tuple(field.split(".")) if field else ()
    if parts[:1] == (CLUSTER,):
        return _explain(ClusterProfile, parts[1:], field)
    path = _through_lists(parts)
    return _explain(Recipe, path, dotted(path))


def _through_lists(path: KeyPath) -> KeyPath:
    """`services.name` as `services.0.name`, where a list of mappings is gone through; every other path stays."""
    found: KeyPath = ()
    for part in path:
        into_list = found and not str(part).isdecimal() and not known_keys(Recipe, found)
        found = (*found, *(("0",) if into_list and known_keys(Recipe, (*found, "0")) else ()), part)
    return found


def _explain(model: type[BaseModel], path: KeyPath, field: str) -> Explanation:
    if reason := _not_built(model, path):
        return Explanation(field, not_built=reason)
    keys = tuple(_keys(model, path)) or tuple(_keys(model, (*path, "0")))
    later = tuple(_later(model, path))
    if model is Recipe and path[:1] == (_ENGINE,):
        settings = described()
        if path[1:] and path[1] in settings:
            one = settings[path[1]]
            return Explanation(field, one.doc, one.type, default=one.default, elsewhere=tuple(_elsewhere(field)))
        keys += tuple(Key(name, one.doc) for name, one in settings.items()) if len(path) == 1 else ()
    if not path:
        if model is Recipe:
            keys = (
                *keys,
                *(Key(name, doc) for name, doc in VARIANT_KEYS.items()),
                Key(CLUSTER, "The cluster profile, srtslurm.yaml: what holds for every recipe there."),
            )
        what = "the cluster profile, srtslurm.yaml" if model is ClusterProfile else "a recipe"
        example = "cluster.model_paths" if model is ClusterProfile else "roles.decode.kv_events"
        doc = f"Keys of {what}. More of one, for example: srtctl explain {example}"
        return Explanation(field, doc, "a mapping", keys=keys, later=later)
    if model is Recipe and (doc := _variants(str(path[0]))):
        return Explanation(field, doc, "a mapping")
    found = field_at(model, path)
    if found is None:
        return _entry(model, path, field)
    return Explanation(
        field,
        found.description or "",
        type_words(found),
        found.is_required(),
        default_words(found),
        tuple(found.examples or ()),
        keys,
        tuple(_elsewhere(field)),
        later,
    )


def _variants(key: str) -> str:
    """What a top-level key that makes several recipes of one file does; "" for any other."""
    return next((doc for pattern, doc in VARIANT_KEYS.items() if fnmatchcase(key, pattern)), "")


def _entry(model: type[BaseModel], path: KeyPath, field: str) -> Explanation:
    """One entry of a free table (an engine flag, an environment variable)."""
    for depth in range(len(path) - 1, 0, -1):
        table = field_at(model, path[:depth])
        if table is not None and is_table(table):
            name = field.removesuffix(dotted(path[depth:])).removesuffix(".")
            doc = f"One entry of `{name}`. {table.description or ''}"
            return Explanation(field, doc, entry_words(table), default="not set", elsewhere=tuple(_elsewhere(field)))
    raise _unknown(model, path, field)


def _unknown(model: type[BaseModel], path: KeyPath, field: str) -> UnknownFieldError:
    """About the first part that leads nowhere, which is where the mistake is; a key of the old layout as a whole."""
    moved = key_hint(path) if model is Recipe else ""
    steps = (path[:depth] for depth in range(1, len(path) + 1))
    nowhere = next((at for at in steps if field_at(model, at) is None and not known_keys(model, at)), path)
    wrong, prefix = path if moved else nowhere, field.removesuffix(dotted(path))
    hint = moved or unknown_hint(model, wrong) or f"`{prefix}{dotted(wrong[:-1])}` holds one value, and no keys"
    if model is Recipe and wrong[:-1] == (_ENGINE,) and not moved:
        hint = _of_engine(str(wrong[-1]))
    return UnknownFieldError(f"there is no key `{prefix}{dotted(wrong)}`", hint)


def _of_engine(name: str) -> str:
    """What may have been meant by an unknown key of `engine`."""
    known = ("type", *described())
    near = nearest(name, known)
    return f"did you mean `{near}`?" if near else f"known here: {', '.join(known)}"


def _keys(model: type[BaseModel], path: KeyPath) -> Iterator[Key]:
    return (Key(name, _doc(model, (*path, name))) for name in known_keys(model, path))


def _doc(model: type[BaseModel], path: KeyPath) -> str:
    found: FieldInfo | None = field_at(model, path)
    return (found.description or "") if found else ""


def _not_built(model: type[BaseModel], path: KeyPath) -> str:
    """Why the key at `path`, or one above it, is not built yet; "" for one that is built or not known at all."""
    if not path:
        return ""
    if model is ClusterProfile:
        return PROFILE_NOT_BUILT[str(path[0])][1] if path[0] in PROFILE_NOT_BUILT else ""
    rows = (row for row in NOT_BUILT if row.whole and fits(path[: row.pattern.count(".") + 1], row.pattern))
    return next((row.reason for row in rows), "")


def _later(model: type[BaseModel], path: KeyPath) -> list[Key]:
    if model is ClusterProfile:
        return [Key(name, reason) for name, (_, reason) in PROFILE_NOT_BUILT.items()] if not path else []
    below = [
        Key(row.pattern.rpartition(".")[2], row.reason)
        for row in NOT_BUILT
        if row.whole and row.pattern.count(".") == len(path) and fits(path, row.pattern.rpartition(".")[0])
    ]
    values = [
        Key(
            ", ".join(f"`{value}`" if isinstance(value, str) else str(value).lower() for value in row.values)
            or "anything but `enabled: false`",
            row.reason,
        )
        for row in NOT_BUILT
        if not row.whole and fits(path, row.pattern)
    ]
    return values + below


def _elsewhere(field: str) -> list[str]:
    path: KeyPath = tuple(field.split("."))
    found = []
    for row in FALLBACKS:
        how = "is laid under it" if row.tables else "applies where this is not set"
        if fits(path, row.pattern):
            found += [f"`{place}` {how}" for place in row.places]
        elif field in row.places:
            found.append(f"`{row.pattern}` {'is laid over it' if row.tables else 'wins over it'}")
    return found if path[0] == CLUSTER else [*found, f"`--set {field}=VALUE` wins over the file"]
