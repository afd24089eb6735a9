"""The short forms of mounts, srun options and Dynamo's source; what of them is refused, where."""

from __future__ import annotations

from pathlib import Path

import pytest
from recipe_texts import HAPPY, changed, marked

from srtctl.recipe.load import load_recipe

MOUNTS = [
    ("{/a: /b, c: /d}", ["/a:/b", "c:/d"]),
    ("['/a:/b:ro+rprivate', /c]", ["/a:/b:ro+rprivate", "/c:/c"]),
    ("[]", []),
    ("['tmpfs:/dev/shm:size=100%']", ["tmpfs:/dev/shm:size=100%"]),
]


@pytest.mark.parametrize("key", ["container_mounts", "extra_mount"])
@pytest.mark.parametrize(("written", "expected"), MOUNTS)
def test_mounts(tmp_path: Path, key: str, written: str, expected: list[str]) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(f"{HAPPY}{key}: {written}\n")
    recipe = load_recipe(path).recipe
    assert recipe is not None
    assert getattr(recipe, key) == expected


def test_options_of_srun(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(HAPPY + "srun_options: {mem: 0, container-remap-root: '', exact-ly: , ratio: 1.50}\n")
    recipe = load_recipe(path).recipe
    assert recipe is not None
    assert recipe.srun_options == {"mem": "0", "container-remap-root": None, "exact-ly": None, "ratio": "1.50"}


SOURCES = [
    ("{install: true}", ("1.6.1", None, None, None)),
    ("{source: {pypi: 1.10}}", ("1.10", None, None, None)),
    ("{source: {wheel: 1.2.0}, install: true}", (None, "1.2.0", None, None)),
    ("{source: {git: 'https://h/d.git', rev: 1234567}}", (None, None, "https://h/d.git", "1234567")),
]


@pytest.mark.parametrize(("written", "expected"), SOURCES)
def test_what_is_installed(tmp_path: Path, written: str, expected: tuple[str | None, ...]) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(f"{HAPPY}dynamo: {written}\n")
    recipe = load_recipe(path).recipe
    assert recipe is not None
    source = recipe.dynamo.installed_source
    assert source is not None
    assert (source.pypi, source.wheel, source.git, source.rev) == expected


@pytest.mark.parametrize("written", ["{}", "{install: false}", "{install: false, source: {pypi: 1.6.1}}"])
def test_the_images_own_dynamo(tmp_path: Path, written: str) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(f"{HAPPY}dynamo: {written}\n")
    recipe = load_recipe(path).recipe
    assert recipe is not None
    assert recipe.dynamo.installed_source is None


REFUSED = [
    # line with the place, path, part of the message, part of the hint
    ("container_mounts: «/a", "container_mounts", "a mapping of source to target, or a list", "What containers see"),
    ("container_mounts: «{/a: b}", "container_mounts", 'holds "/a:b", whose target is no absolute path', "SOURCE:T"),
    ("extra_mount: «['/a,b:/c']", "extra_mount", "with a comma, a blank or a line break", "joined by `+`"),
    ("extra_mount: «['/a b:/c']", "extra_mount", "with a comma, a blank or a line break", "joined by `+`"),
    ("extra_mount: «[':/c']", "extra_mount", "which has no source", "SOURCE:TARGET"),
    ("extra_mount: «[3]", "extra_mount", "must hold texts, not 3", "SOURCE:TARGET"),
    ("srun_options: {mem: «true}", "srun_options.mem", "must be text", "quote"),
    ("srun_options: {«--mem: 0}", "srun_options.--mem", "not a valid name", "without the leading dashes"),
    ("dynamo: {source: «{}}", "dynamo.source", "names no source", "one of `pypi`, `wheel`, or `git`"),
    ("dynamo: {source: «{pypi: '1', wheel: '1'}}", "dynamo.source", "`pypi` and `wheel`", "give one of"),
    ("dynamo: {source: «{git: 'https://h/d.git'}}", "dynamo.source", "`git` and `rev` together", "commit, tag"),
    ("dynamo: {source: «{pypi: '1', rev: abc}}", "dynamo.source", "`git` and `rev` together", "commit, tag"),
]


@pytest.mark.parametrize(("line", "key", "message", "hint"), REFUSED, ids=[row[0] for row in REFUSED])
def test_refused(tmp_path: Path, line: str, key: str, message: str, hint: str) -> None:
    text, place = marked(changed("", line))
    path = tmp_path / "r.yaml"
    path.write_text(text)
    loaded = load_recipe(path)
    [found] = loaded.diagnostics
    assert (found.path, str(found.span)) == (key, f"{path}:{place}")
    assert message in found.message
    assert hint in found.hint
