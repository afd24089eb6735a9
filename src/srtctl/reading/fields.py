"""Looking things up in pydantic models by path: the field there, the keys allowed, who else has a key."""

from __future__ import annotations

from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from srtctl.reading.build import KeyPath


def field_at(model: type[BaseModel], path: KeyPath) -> FieldInfo | None:
    """The field that `path` names, None if it names a list item, an entry of a free table, or nothing."""
    return _follow(model, path)[0]


def known_keys(model: type[BaseModel], path: KeyPath) -> list[str]:
    """The keys allowed in the mapping at `path`, in the model's order; empty for a free table or no mapping."""
    return [name for option in options(_follow(model, path)[1]) if _is_model(option) for name in _fields(option)]


def owners(model: type[BaseModel], name: str) -> list[str]:
    """Where else a key `name` is allowed, dotted; places with the same model are one: `roles.prefill/decode/agg`."""
    places: dict[type[BaseModel], list[tuple[str, ...]]] = {}
    for owner, path in _models(model, ()):
        if name in _fields(owner):
            places.setdefault(owner, []).append(path)
    return [".".join((*paths[0][:-1], "/".join(path[-1] for path in paths))) for paths in places.values() if paths[0]]


def key_description(field: FieldInfo | None) -> str:
    """What the keys of a free table (`dict[Name, …]`) must look like, as its key type says; "" if it says nothing."""
    for option in options(field.annotation) if field else ():
        if get_origin(option) is dict:
            facts = getattr(get_args(option)[0], "__metadata__", ())
            return next((fact.description for fact in facts if getattr(fact, "description", None)), "")
    return ""


def _follow(annotation: Any, path: KeyPath) -> tuple[FieldInfo | None, Any]:
    field = None
    for part in path:
        field, annotation = _step(annotation, str(part))
    return field, annotation


def _step(annotation: Any, part: str) -> tuple[FieldInfo | None, Any]:
    for option in options(annotation):
        if _is_model(option) and part in (fields := _fields(option)):
            return fields[part], fields[part].annotation
        if get_origin(option) in (dict, list):
            return None, get_args(option)[-1]
    return None, None


def options(annotation: Any) -> Iterator[Any]:
    """The members of a union, without `Annotated`."""
    if get_origin(annotation) is Annotated:
        yield from options(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, UnionType):
        for member in get_args(annotation):
            yield from options(member)
    else:
        yield annotation


def _is_model(option: Any) -> bool:
    return isinstance(option, type) and issubclass(option, BaseModel)


def _fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _models(model: type[BaseModel], path: tuple[str, ...]) -> Iterator[tuple[type[BaseModel], tuple[str, ...]]]:
    yield model, path
    for name, field in _fields(model).items():
        for option in options(field.annotation):
            if _is_model(option):
                yield from _models(option, (*path, name))
