"""Protobuf messages from tables."""

from __future__ import annotations

import pytest

from srtctl.sim.protobuf import build

TABLE = {
    "Inner": ("1 string text",),
    "Outer": (
        *("1 *int32 numbers", "2 ?int32 maybe", "3 map<string,string> words", "4 oneof:kind:string name"),
        *("5 oneof:kind:Inner inner", "6 Struct extra", "7 Color color"),
    ),
}


def test_fields_keep_their_wire_form() -> None:
    messages = build("example", TABLE, {"Color": {"NONE": 0, "RED": 1}})
    outer = messages["Outer"](numbers=[1, 300], words={"k": "v"}, name="n", color=1)
    # packed field 1; map entry in field 3; field 4; field 7
    assert outer.SerializeToString() == bytes.fromhex("0a0301ac021a060a016b12017622016e3801")
    assert not outer.HasField("maybe")
    outer.maybe = 0
    assert outer.HasField("maybe")
    outer.inner.text = "x"
    assert outer.WhichOneof("kind") == "inner"
    outer.extra["a"] = True
    assert messages["Outer"].FromString(outer.SerializeToString()) == outer


def test_the_same_package_may_be_described_twice() -> None:
    assert build("example", TABLE, {"Color": {"NONE": 0}})["Inner"] is not build("example", {"Inner": ()})["Inner"]


@pytest.mark.parametrize("entry", ["string name", "1 string", "1 map<string> name", "x string name"])
def test_a_malformed_entry_is_named(entry: str) -> None:
    with pytest.raises(ValueError, match=r"example\.Bad: not a field") as error:
        build("example", {"Bad": (entry,)})
    assert repr(entry) in str(error.value)
