"""`direct_dispatch` in a recipe: what may be written, and that it reads back."""

from __future__ import annotations

from pathlib import Path

import pytest
from recipe_texts import HAPPY

from srtctl.recipe.dump import dump_resolved
from srtctl.recipe.load import load_recipe


def written(folder: Path) -> Path:
    path = folder / "r.yaml"
    path.write_text(HAPPY)
    return path


@pytest.mark.parametrize("value", ["true", "false", "[]", "[0]", "[3, 1]"])
@pytest.mark.parametrize("default", ["true", "false"])
def test_it_reads_back(tmp_path: Path, value: str, default: str) -> None:
    overrides = [f"roles.agg.direct_dispatch={value}", f"dynamo.direct_dispatch={default}"]
    first = load_recipe(written(tmp_path), overrides=overrides).recipe
    assert first is not None
    (tmp_path / "again.yaml").write_text(dump_resolved(first))
    assert load_recipe(tmp_path / "again.yaml").recipe == first


@pytest.mark.parametrize(
    ("value", "words", "hint"),
    [
        ("'yes'", 'must be true, false or a list of worker numbers, not "yes"', "write true, without quotes"),
        ("{workers: [0]}", "must be true, false or a list of worker numbers, not a mapping", ""),
        ("[a]", 'must hold worker numbers, not "a"', "workers count from 0"),
        ("[true]", "must hold worker numbers, not true", "workers count from 0"),
        ("[-1]", "must hold worker numbers, not -1", "workers count from 0"),
        ("[1, 1]", "names worker 1 twice", "name each worker once"),
    ],
)
def test_anything_else_is_refused_in_words(tmp_path: Path, value: str, words: str, hint: str) -> None:
    loaded = load_recipe(written(tmp_path), overrides=[f"roles.agg.direct_dispatch={value}"])
    assert loaded.recipe is None
    [found] = loaded.diagnostics
    assert found.path == "roles.agg.direct_dispatch"
    assert words in found.message
    assert found.hint.startswith(hint)
