"""One file, many recipes: `base` with overrides, zipped overrides, sweeps, and the selectors that name them."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from srtctl.reading.document import parse_yaml
from srtctl.recipe.load import LoadedRecipe, load_recipe, load_variants
from srtctl.recipe.variants import Written, expand, split_selector

FILE = """\
schema: 2
base:
  name: job
  model: {path: /models/m, container: c}
  resources: {gpus_per_node: 8}
  engine: sglang
  roles:
    agg: {nodes: 1, gpus: 8, args: {tp-size: 8, list: [1, 2], page-size: 64}}
override_big:
  roles: {agg: {nodes: 2, workers: 2, args: {list: [3], page-size: null}}}
override_named:
  name: mine
zip_override_scale:
  roles:
    agg:
      nodes: [1, 2]
      workers: [1, 2]
      args: {page-size: [32], list: [[7, 8], [9]]}
"""
RECIPE = FILE[FILE.index("  name: job") : FILE.index("override_big")]


def expanded(text: str, select: str = "") -> list[Written]:
    return expand(parse_yaml(textwrap.dedent(text), "f"), select)


def data(text: str, select: str = "") -> dict[str, Any]:
    return {item.name: item.document.data for item in expanded(text, select)}


def test_overrides_are_laid_over_the_base() -> None:
    found = data(FILE)
    assert list(found) == ["override_big", "override_named", "zip_override_scale[0]", "zip_override_scale[1]"]
    big = found["override_big"]
    assert big["schema"] == 2
    assert big["name"] == "job_big"
    assert big["roles"] == {
        "agg": {"nodes": 2, "gpus": 8, "args": {"tp-size": 8, "list": [3]}, "workers": 2},
    }
    assert found["override_named"]["name"] == "mine"


def test_zipped_overrides_take_the_item_of_their_index() -> None:
    found = data(FILE)
    first, second = found["zip_override_scale[0]"], found["zip_override_scale[1]"]
    assert (first["name"], second["name"]) == ("job_scale_0", "job_scale_1")
    assert first["roles"]["agg"] == {
        "nodes": 1,
        "workers": 1,
        "gpus": 8,
        "args": {"tp-size": 8, "list": [7, 8], "page-size": 32},
    }
    assert second["roles"]["agg"]["args"]["list"] == [9]
    assert second["roles"]["agg"]["args"]["page-size"] == 32


def test_a_list_of_one_is_for_all_and_no_list_is_one_variant() -> None:
    text = "base: {name: n}\nzip_override_a: {x: [1]}\nzip_override_b: {x: 5}\n"
    assert data(text) == {
        "zip_override_a[0]": {"name": "n_a_0", "x": 1},
        "zip_override_b[0]": {"name": "n_b_0", "x": 5},
    }


def test_zipped_null_deletes() -> None:
    text = "base: {name: n, x: 1}\nzip_override_a: {x: [null, 2]}\n"
    assert [item.get("x") for item in data(text).values()] == [None, 2]


@pytest.mark.parametrize(
    ("select", "names"),
    [
        ("base", ["base"]),
        ("override_big", ["override_big"]),
        ("zip_override_scale", ["zip_override_scale[0]", "zip_override_scale[1]"]),
        ("zip_override_scale[1]", ["zip_override_scale[1]"]),
        ("override_*", ["override_big", "override_named"]),
        ("*", ["override_big", "override_named", "zip_override_scale[0]", "zip_override_scale[1]"]),
        ("none", []),
    ],
)
def test_selectors(select: str, names: list[str]) -> None:
    assert [item.name for item in expanded(FILE, select)] == names


def test_a_sweep_is_the_product_with_types_kept() -> None:
    text = """\
        name: s
        args: {tp: "{tp}", on: "{ep}", text: "x{tp}-{ep}", json: '{"a":1}', other: "{nobody}", list: ["{tp}"]}
        sweep: {tp: [1, 2], ep: [true, false], fixed: 3}
        x: "{fixed}"
        """
    found = data(text)
    assert list(found) == ["tp=1,ep=true", "tp=1,ep=false", "tp=2,ep=true", "tp=2,ep=false"]
    assert found["tp=2,ep=true"] == {
        "name": "s_tp2_eptrue",
        "args": {"tp": 2, "on": True, "text": "x2-true", "json": '{"a":1}', "other": "{nobody}", "list": [2]},
        "x": 3,
    }


def test_a_sweep_of_one_combination_is_the_recipe_itself() -> None:
    assert data('name: s\nx: "{a}"\nsweep: {a: [16]}\n') == {"": {"name": "s", "x": 16}}


def test_a_sweep_in_a_base_multiplies_its_variants() -> None:
    text = 'base: {name: "n{a}", x: "{a}", sweep: {a: [1, 2]}}\noverride_o: {y: 1}\n'
    found = data(text)
    assert list(found) == ["override_o:a=1", "override_o:a=2"]
    assert found["override_o:a=2"] == {"name": "n2_o", "x": 2, "y": 1}
    assert list(data(text, "base")) == ["base:a=1", "base:a=2"]


def test_numbers_of_a_sweep_are_text_in_an_environment_as_they_are_written(tmp_path: Path) -> None:
    text = "schema: 2\n" + textwrap.dedent(RECIPE) + 'environment: {A: "{r}"}\nsweep: {r: [1.50, 0x10]}\n'
    (tmp_path / "r.yaml").write_text(text)
    found = [item.loaded.recipe.environment for item in load_variants(tmp_path / "r.yaml") if item.loaded.recipe]
    assert found == [{"A": "1.50"}, {"A": "0x10"}]


@pytest.mark.parametrize(
    ("text", "code", "place", "words"),
    [
        ("override_a: {x: 1}\n", "variants/base", "1:1", "has no `base`"),
        ("base: 3\noverride_a: {x: 1}\n", "variants/base", "1:1", "`base` must be a mapping, not 3"),
        ("base: {}\noverride_a: 1\n", "variants/section", "2:1", "must be a mapping of what differs"),
        ("base: {}\noverride_a: {}\nname: x\n", "variants/section", "3:1", "`name` stands beside `base`"),
        (
            "base: {}\nzip_override_a:\n  x: [1, 2]\n  y: {z: [1, 2, 3]}\n",
            "variants/zip",
            "4:10",
            "`zip_override_a.y.z` has 3 values, but `zip_override_a.x` has 2",
        ),
        ("name: n\nsweep: [1]\n", "variants/sweep", "2:1", "must be a mapping of names to lists"),
        ("name: n\nsweep: {a: []}\n", "variants/sweep", "2:1", "must be a mapping of names to lists"),
        (
            'name: "{a}{b}"\nsweep: {a: [' + "1, " * 40 + "], b: [" + "1, " * 40 + "]}\n",
            "variants/sweep",
            "2:1",
            "1600 combinations",
        ),
    ],
)
def test_what_is_wrong_with_variants(tmp_path: Path, text: str, code: str, place: str, words: str) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(text)
    found = load_variants(path)
    assert all(item.loaded.recipe is None for item in found)
    [diagnostic] = found[0].loaded.diagnostics
    assert (diagnostic.code, str(diagnostic.span)) == (code, f"{path}:{place}")
    assert words in diagnostic.message


def test_an_unused_value_is_a_warning_and_makes_no_variants(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("schema: 2\n" + textwrap.dedent(RECIPE) + "sweep: {dp: [1, 2]}\n")
    [only] = load_variants(path)
    assert only.loaded.recipe is not None
    [found] = only.loaded.diagnostics
    assert (found.code, found.severity) == ("variants/sweep-unused", "warning")


def only(path: str | Path) -> LoadedRecipe:
    [found] = load_variants(path)
    return found.loaded


def test_a_selector_on_the_path(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(FILE)
    loaded = only(f"{path}:override_big")
    assert loaded.recipe is not None
    assert loaded.recipe.roles["agg"].nodes == 2
    assert load_recipe(f"{path}:override_big").recipe == loaded.recipe
    [found] = only(f"{path}:override_bgi").diagnostics
    assert (found.code, found.hint) == ("variants/unknown", "did you mean `override_big`?")
    [found] = only(f"{path}:nothing-like-it").diagnostics
    assert found.hint == ("known here: override_big, override_named, zip_override_scale[0], zip_override_scale[1]")
    [found] = load_recipe(path).diagnostics
    assert found.code == "variants/several"
    assert "override_big, override_named, zip_override_scale[0]" in found.message
    assert found.hint == f"name one: `{path}:override_big`"


def test_a_selector_on_a_file_of_one_recipe(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("schema: 2\n")
    [found] = only(f"{path}:x").diagnostics
    assert (found.code, found.hint) == ("variants/unknown", "name it without `:x`")
    assert "it is one recipe" in found.message


def test_where_a_path_holds_a_colon(tmp_path: Path) -> None:
    odd = tmp_path / "a:b.yaml"
    assert split_selector(f"{tmp_path}/a:b.yaml") == (tmp_path / "a", "b.yaml")
    odd.write_text("x")
    assert split_selector(odd) == (odd, "")
    assert split_selector(f"{odd}:c") == (odd, "c")
    assert split_selector("x.yaml") == (Path("x.yaml"), "")


@pytest.mark.parametrize(
    ("old", "new", "select", "place"),
    [
        ("{nodes: 1, gpus: 8", "{nodes: 1, gpus: x", "override_big", "8:27"),
        ("{agg: {nodes: 2,", "{agg: {nodes: x,", "override_big", "10:24"),
        ("nodes: [1, 2]", "nodes: [1, x]", "zip_override_scale[1]", "16:18"),
    ],
)
def test_a_diagnostic_points_into_the_section_that_says_it(
    tmp_path: Path, old: str, new: str, select: str, place: str
) -> None:
    path = tmp_path / "r.yaml"
    assert FILE.count(old) == 1
    path.write_text(FILE.replace(old, new))
    [found] = only(f"{path}:{select}").diagnostics
    assert str(found.span) == f"{path}:{place}"
