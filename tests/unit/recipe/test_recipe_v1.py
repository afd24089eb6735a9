"""The v1 layout is recognised: one clear diagnostic, for every public recipe."""

from __future__ import annotations

from pathlib import Path

import pytest

from srtctl.recipe.load import load_recipe

CORPUS = Path(__file__).parents[4] / "shared" / "corpus"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("name: x\nbackend:\n  type: sglang\n", "2:1"),
        ("base:\n  name: x\n  backend: {}\noverride_a: {}\n", "3:3"),
    ],
)
def test_one_diagnostic_at_the_backend(tmp_path: Path, text: str, place: str) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(text)
    loaded = load_recipe(path)
    [found] = loaded.diagnostics
    assert (found.code, str(found.span)) == ("recipe/v1", f"{path}:{place}")
    assert "`schema: 2`" in found.hint
    assert loaded.recipe is None


@pytest.mark.skipif(
    not CORPUS.is_dir(), reason="the corpus of public recipes lies beside the checkout, and is not there"
)
def test_every_public_recipe_is_read_and_recognised() -> None:
    paths = sorted(CORPUS.rglob("*.yaml"))
    assert len(paths) > 1000
    odd = {}
    for path in paths:
        codes = [item.code for item in load_recipe(path).diagnostics]
        if codes != ["recipe/v1"]:
            odd[str(path)] = codes
    assert odd == {}
