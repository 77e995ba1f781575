"""The wire format of protocol buffers: what keys, numbers and lengths look like as bytes."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["WireError", "bytes_field", "fields_of", "key", "varint"]

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
_NUMBER_BITS = 64
_SMALL = [bytes([number]) for number in range(0x80)]


class WireError(ValueError):
    """Bytes that are no message."""


def varint(number: int) -> bytes:
    """A number, seven bits a byte; a negative one as 64 bits of two's complement."""
    if 0 <= number < 0x80:
        return _SMALL[number]
    number &= (1 << _NUMBER_BITS) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def key(number: int, kind: int) -> bytes:
    """What stands before a field: its number and what follows."""
    return varint(number << 3 | kind)


def bytes_field(number: int, value: bytes) -> bytes:
    """A text, a message, or bytes."""
    return key(number, LENGTH) + varint(len(value)) + value


def fields_of(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Numbers and values of the fields with a length (texts, messages, bytes), in order; others are passed over.

    Raises WireError.
    """
    at, end = 0, len(message)
    while at < end:
        tag, at = _read_varint(message, at)
        kind = tag & 7
        if not tag >> 3:
            raise WireError(f"field number 0 before byte {at}")
        if kind == VARINT:
            _, at = _read_varint(message, at)
            continue
        if kind == LENGTH:
            size, at = _read_varint(message, at)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise WireError(f"wire type {kind} at byte {at}")
        if at + size > end:
            raise WireError(f"a field of {size} bytes at byte {at}, of {end}")
        if kind == LENGTH:
            yield tag >> 3, message[at : at + size]
        at += size


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(message) and shift < _NUMBER_BITS + 6:
        byte = message[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
    raise WireError(f"a number without end at byte {at}")
