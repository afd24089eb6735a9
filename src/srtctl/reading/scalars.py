"""What a plain (unquoted) YAML scalar means: the YAML 1.2 core schema, not the YAML 1.1 rules PyYAML has built in.

| source | here | YAML 1.1 (PyYAML's own rules) |
|---|---|---|
| `yes` `no` `on` `off` `y` `n` | text | bool, or text |
| `00:30:00` `2026-01-01` `1_000` | text | 1800, a date, 1000 |
| `1e-5` `0o17` | 1e-05, 15 | text, text |
| `010` `-007` | an error: 8, or 10? | 8, -7 |

Source: YAML 1.2.2, section 10.3.2 (core schema tag resolution).
"""

from __future__ import annotations

import re

Scalar = str | int | float | bool | None

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_NUMBER_START = frozenset("+-.0123456789")
_INT = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_INFINITY = re.compile(r"[-+]?\.(?:inf|Inf|INF)")
_NAN = frozenset({".nan", ".NaN", ".NAN"})
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+")
# CPython refuses longer decimal literals (sys.int_info.default_max_str_digits); nobody means a number by one.
_MAX_DIGITS = 4300

TAG = "tag:yaml.org,2002:"
STR, INT, FLOAT, BOOL, NULL = (TAG + name for name in ("str", "int", "float", "bool", "null"))
MAP, SEQ, MERGE = (TAG + name for name in ("map", "seq", "merge"))


class ScalarError(ValueError):
    """A scalar that has no one meaning; `code` and `hint` as in a Diagnostic."""

    def __init__(self, code: str, message: str, hint: str) -> None:
        super().__init__(message)
        self.code, self.hint = code, hint


def plain_value(text: str) -> Scalar:
    """The value of an unquoted, untagged scalar. Raises ScalarError for a number with a leading zero."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if text[0] not in _NUMBER_START:
        return text
    if _LEADING_ZERO.fullmatch(text):
        raise ScalarError(
            "yaml/leading-zero",
            f"`{text}` can be read in two ways: as octal (YAML 1.1) or as decimal (YAML 1.2)",
            f'quote it if it is text ("{text}"), else drop the leading zero; octal is 0o{text.lstrip("+-0") or 0}',
        )
    number = _number(text)
    return text if number is None else number


def tagged_value(text: str, tag: str) -> Scalar:
    """The value of a scalar with an explicit standard tag (`!!str 8`). Raises ScalarError if the text does not fit."""
    if tag == STR:
        return text
    value = plain_value(text)
    if tag == FLOAT and type(value) is int:
        return float(value)
    if type(value) is {INT: int, FLOAT: float, BOOL: bool, NULL: type(None)}.get(tag):
        return value
    name = tag.removeprefix(TAG)
    if tag not in (INT, FLOAT, BOOL, NULL):
        raise ScalarError("yaml/tag", f"tag `{tag}` is not supported", "remove the tag and write the value plainly")
    raise ScalarError("yaml/tag", f"`{text}` is no YAML {name}", f"remove `!!{name}`")


def _number(text: str) -> int | float | None:
    if _INT.fullmatch(text):
        return int(text) if len(text) < _MAX_DIGITS else None
    if _OCTAL.fullmatch(text):
        return int(text[2:], 8)
    if _HEX.fullmatch(text):
        return int(text[2:], 16)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _INFINITY.fullmatch(text):
        return float("-inf" if text[0] == "-" else "inf")
    return float("nan") if text in _NAN else None
