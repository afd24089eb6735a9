"""Protobuf messages read by hand, so that no generated code, nor the protobuf package, is needed."""

from __future__ import annotations

from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types
_WIDTHS = {_FIXED64: 8, _FIXED32: 4}


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field in turn: an int of a varint, bytes of everything else. Raises ValueError."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield tag >> 3, value
            continue
        if kind == _BYTES:
            size, at = _varint(message, at)
        elif kind in _WIDTHS:
            size = _WIDTHS[kind]
        else:
            raise ValueError(f"wire type {kind}")
        if at + size > len(message):
            raise ValueError("it ends inside a field")
        yield tag >> 3, message[at : at + size]
        at += size


def text(value: int | bytes) -> str:
    """The value of a string field. Raises ValueError for one of another kind."""
    if isinstance(value, int):
        raise ValueError("a number where text belongs")
    return value.decode()


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """The number at `at`, and where it ends."""
    value = shift = 0
    while at < len(message):
        byte = message[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return value, at
    raise ValueError("it ends inside a number")
