"""Fields of protocol buffer messages, without generated code."""

from __future__ import annotations

import threading
import time

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LAST_NUMBER = 2**31 - 1
_LOOK = 1024  # fields between looks at the clock


class Malformed(ValueError):
    """Bytes that are no message."""


class _Limit(threading.local):
    deadline = float("inf")


_limit = _Limit()


class until:
    """Bounds how long this thread reads messages, by time.monotonic(): fields raises TimeoutError. It has no generator, whose end
    after an exception would come at any time."""

    def __init__(self, deadline):
        self._deadline = deadline

    def __enter__(self):
        _limit.deadline = self._deadline

    def __exit__(self, *_):
        _limit.deadline = float("inf")


def _look():
    if time.monotonic() > _limit.deadline:
        raise TimeoutError("share: open: the ticket is too large to be decoded in this time")


def fields(message):
    """Yields the number, the integer (0 for bytes) and the bytes (empty for an integer) of each field, in their order.
    Fields of a fixed size, which tickets do not have, are skipped."""
    at, end, count = 0, len(message), 0
    while at < end:
        count += 1
        if count % _LOOK == 0:
            _look()
        tag, at = _varint(message, at)
        number, kind = tag >> 3, tag & 7
        if not 0 < number <= _LAST_NUMBER:
            raise Malformed(f"a field has the number {number}")
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield number, value, b""
            continue
        if kind == _BYTES:
            size, at = _varint(message, at)
        elif kind in (_FIXED32, _FIXED64):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise Malformed(f"field {number} has the wire type {kind}")
        if size > end - at:
            raise Malformed(f"field {number} is cut off: of its {size} bytes, {end - at} are left")
        if kind == _BYTES:
            yield number, 0, message[at : at + size]
        at += size


def _varint(message, at):
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            break
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            if value >> 64:
                break
            return value, at
    raise Malformed("a number is cut off or too large")


def numbers(packed):
    """Yields the values of a packed field of the type int64."""
    at = count = 0
    while at < len(packed):
        count += 1
        if count % _LOOK == 0:
            _look()
        value, at = _varint(packed, at)
        yield signed(value)


def signed(value):
    """The int64 or int32 of a varint, which has 64 bits."""
    return value - (1 << 64) if value >> 63 else value


def zigzag(value):
    """The sint64 of a varint."""
    return (value >> 1) ^ -(value & 1)


def integer(number, value):
    """A field of an integer; none if it is zero."""
    return b"" if value == 0 else _encoded(number << 3 | _VARINT) + _encoded(value & 0xFFFFFFFFFFFFFFFF)


def sint(number, value):
    """A field of the type sint64; none if it is zero."""
    return integer(number, (value << 1) ^ (value >> 63))


def data(number, value):
    """A field of bytes; none if they are empty."""
    return message(number, value) if value else b""


def message(number, value):
    """A field of a message, even of an empty one."""
    return _encoded(number << 3 | _BYTES) + _encoded(len(value)) + value


def packed(number, values):
    """A packed field of the type int64; none if it is empty."""
    return data(number, b"".join(_encoded(v & 0xFFFFFFFFFFFFFFFF) for v in values))


def _encoded(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
