"""What a plain scalar means."""

from __future__ import annotations

import math

import pytest

from srtctl.reading.scalars import TAG, ScalarError, plain_value, tagged_value

PLAIN = [
    ("", None),
    ("~", None),
    ("null", None),
    ("NULL", None),
    ("nUll", "nUll"),
    ("true", True),
    ("False", False),
    ("TRUE", True),
    ("tRUE", "tRUE"),
    ("yes", "yes"),
    ("no", "no"),
    ("on", "on"),
    ("off", "off"),
    ("y", "y"),
    ("n", "n"),
    ("0", 0),
    ("8", 8),
    ("-1", -1),
    ("+1", 1),
    ("0o17", 15),
    ("0x1F", 31),
    ("-0x1F", "-0x1F"),
    ("0b1", "0b1"),
    ("1_000", "1_000"),
    ("00:30:00", "00:30:00"),
    ("1:30", "1:30"),
    ("2026-01-01", "2026-01-01"),
    ("1.5", 1.5),
    ("0.80", 0.8),
    ("1.", 1.0),
    (".5", 0.5),
    ("-.5", -0.5),
    (".", "."),
    ("1e-5", 1e-05),
    ("1E5", 1e5),
    ("1.0.0", "1.0.0"),
    ("v1", "v1"),
    (".inf", math.inf),
    ("-.INF", -math.inf),
    ("inf", "inf"),
    ("nan", "nan"),
    ("0.5.7", "0.5.7"),
    ("-", "-"),
    ("+", "+"),
    ("0.0", 0.0),
    ("-0", 0),
    ("--port", "--port"),
    ("9" * 5000, "9" * 5000),
]


@pytest.mark.parametrize(("text", "value"), PLAIN, ids=[text[:12] or "empty" for text, _ in PLAIN])
def test_plain(text: str, value: object) -> None:
    read = plain_value(text)
    assert (read, type(read)) == (value, type(value))


def test_not_a_number_is_read() -> None:
    value = plain_value(".nan")
    assert isinstance(value, float)
    assert math.isnan(value)


@pytest.mark.parametrize(("text", "octal"), [("010", "0o10"), ("-007", "0o7"), ("08", "0o8"), ("00", "0o0")])
def test_a_leading_zero_is_refused_with_both_ways_out(text: str, octal: str) -> None:
    with pytest.raises(ScalarError) as caught:
        plain_value(text)
    assert caught.value.code == "yaml/leading-zero"
    assert f'"{text}"' in caught.value.hint
    assert octal in caught.value.hint or "8" in octal


@pytest.mark.parametrize(
    ("text", "tag", "value"),
    [
        ("8", "str", "8"),
        ("8", "int", 8),
        ("8", "float", 8.0),
        ("1.5", "float", 1.5),
        ("true", "bool", True),
        ("", "null", None),
    ],
)
def test_a_standard_tag(text: str, tag: str, value: object) -> None:
    read = tagged_value(text, TAG + tag)
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "tag"),
    [("x", TAG + "int"), ("true", TAG + "int"), ("8", TAG + "bool"), ("8", "!mine"), ("=", TAG + "value")],
)
def test_a_tag_that_does_not_fit(text: str, tag: str) -> None:
    with pytest.raises(ScalarError) as caught:
        tagged_value(text, tag)
    assert caught.value.code == "yaml/tag"
