"""The example values of recipe and profile keys, which `srtctl explain` and the schemas show, are valid."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import BaseModel, TypeAdapter

from srtctl.cluster.model import ClusterProfile
from srtctl.recipe import model, roles

MODELS = {
    kind
    for module in (model, roles)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, BaseModel)
} | {ClusterProfile}
EXAMPLES = [
    (f"{kind.__name__}.{name}", field, value)
    for kind in sorted(MODELS, key=lambda kind: kind.__name__)
    for name, field in kind.model_fields.items()
    for value in field.examples or ()
]


@pytest.mark.parametrize(("name", "field", "value"), EXAMPLES, ids=[f"{name}-{value}" for name, _, value in EXAMPLES])
def test_an_example_is_valid(name: str, field: Any, value: Any) -> None:
    kind = Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
    TypeAdapter(kind).validate_python(value, strict=True)


def test_what_is_hard_to_guess_has_one() -> None:
    assert {"Model.path", "Role.args", "Role.kv_events", "ClusterProfile.model_paths"} <= {
        name for name, *_ in EXAMPLES
    }
