"""docs/compatibility.md is what the code does to the public recipes."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

from tests.support import CORPUS, REPOSITORY, needs_corpus


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "write_compatibility", REPOSITORY / "scripts" / "write_compatibility.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look their module up
    spec.loader.exec_module(module)
    return module


WRITER = script()
PAGE = WRITER.FILE.read_text()


@needs_corpus
def test_no_drift() -> None:
    assert WRITER.compatibility_text(CORPUS) == PAGE, "run `python scripts/write_compatibility.py ../shared/corpus`"


def test_what_is_called_supported_is_a_key_of_the_recipe() -> None:
    assert "| `resources.prefill_nodes` | `roles.prefill.nodes` |" in PAGE
    assert WRITER.unknown_keys(PAGE) == []
    invented = "| `frontend.typ` | the same | 1 | supported |"
    assert WRITER.unknown_keys(invented) == ["frontend.typ"]
