"""Fields of pydantic models in words: what may be written, what applies otherwise, which of them are free tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from srtctl.reading.fields import options
from srtctl.reading.validation import shown

_PLURAL = re.compile(r"^a (mapping|whole number|number)\b")


def type_words(field: FieldInfo) -> str:
    """What a user may write: `true, false or a mapping`, `a whole number of at least 1`."""
    return _sentence(_words(_written(field.annotation, field.metadata), field.metadata))


def entry_words(field: FieldInfo) -> str:
    """What a user may write for one entry of a free table."""
    for option in options(field.annotation):
        if get_origin(option) is dict:
            return _sentence(_words(get_args(option)[1], []))
    return ""


def is_table(field: FieldInfo | None) -> bool:
    """Whether the field is a free table, whose keys are the user's."""
    return field is not None and any(get_origin(option) is dict for option in options(field.annotation))


def default_words(field: FieldInfo) -> str:
    """The value that applies when nothing is written; "" for a required field."""
    if field.is_required():
        return ""
    default = field.get_default(call_default_factory=True)
    if isinstance(default, BaseModel):
        return "the defaults of its keys"
    return "not set" if default is None else "empty" if default == {} else flow(default)


def flow(value: Any) -> str:
    """`value` on one line of YAML."""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10**9)
    return text.removesuffix("\n").removesuffix("\n...")


def _written(annotation: Any, metadata: Sequence[Any]) -> Any:
    """What is accepted before a validator turns it into the model's own type."""
    for fact in metadata:
        if isinstance(fact, BeforeValidator) and fact.json_schema_input_type is not PydanticUndefined:
            return fact.json_schema_input_type
    return annotation


def _words(annotation: Any, facts: Sequence[Any]) -> Iterator[str]:
    """One word or phrase for each alternative; null, which is the same as leaving the key out, is none."""
    origin = get_origin(annotation)
    if origin is Annotated:
        base, *own = get_args(annotation)
        yield from _words(_written(base, own), [*facts, *_unpacked(own)])
    elif origin in (Union, UnionType):
        for member in get_args(annotation):
            yield from _words(member, facts)
    elif origin is Literal:
        yield from (f"`{shown(choice).strip(chr(34))}`" for choice in get_args(annotation))
    elif origin is list:
        items = _sentence(_words(get_args(annotation)[0], []))
        yield f"a list of {_PLURAL.sub(lambda found: f'{found[1]}s', items)}"
    elif origin is dict:
        yield f"a mapping of names to {_sentence(_words(get_args(annotation)[1], []))}"
    elif annotation is bool:
        yield from ("true", "false")
    elif annotation is int:
        yield " ".join(("a whole number", *_limits(facts)))
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield "a mapping"
    elif annotation is not type(None):
        yield {str: "text", float: "a number", Any: "any value"}[annotation]


def _unpacked(facts: Sequence[Any]) -> Iterator[Any]:
    for fact in facts:
        yield from fact.metadata if isinstance(fact, FieldInfo) else (fact,)


def _limits(facts: Sequence[Any]) -> Iterator[str]:
    for fact in facts:
        if (least := getattr(fact, "ge", None)) is not None:
            yield f"of at least {least}"
        if (most := getattr(fact, "le", None)) is not None:
            yield f"and at most {most}"


def _sentence(alternatives: Iterable[str]) -> str:
    words = list(dict.fromkeys(alternatives))
    if "a number" in words:
        words = [word for word in words if word != "a whole number"]
    return words[-1] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
