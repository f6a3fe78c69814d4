"""The encoding of values in requests and replies. All numbers are little endian, without padding."""

from __future__ import annotations

import struct
from typing import NamedTuple

from ._errors import Refusal

_I64, _U64, _F64, _U32, _U8 = (struct.Struct("<" + f) for f in "qQdIB")
_OBJECT = struct.Struct("<BQiqq")

NONE = b"N"


class Reference(NamedTuple):
    """An object in a reply. Its receiver owns the handle."""

    kind: str
    handle: int
    device_type: int
    device_id: int
    rows: int


def encode_int(value):
    """An int. One above 2**63-1 has its own letter."""
    if -(1 << 63) <= value < 1 << 63:
        return b"I" + _I64.pack(value)
    if 0 <= value < 1 << 64:
        return b"U" + _U64.pack(value)
    # Python refuses to print a number of thousands of digits.
    text = str(value) if value.bit_length() <= 128 else f"an int of {value.bit_length()} bits"
    raise Refusal(OverflowError, f"{text} does not fit into 64 bits")


def encode_text(value):
    """A str without its letter."""
    try:
        encoded = value.encode()
    except UnicodeEncodeError as e:
        raise Refusal(ValueError, f"cannot be encoded as UTF-8: {e}") from None
    return _U32.pack(len(encoded)) + encoded


def encode_str(value):
    return b"S" + encode_text(value)


def encode_bytes(value):
    value = bytes(value)
    if len(value) >= 1 << 32:
        raise Refusal(OverflowError, f"{len(value)} bytes are too long")
    return b"B" + _U32.pack(len(value)) + value


def encode_float(value):
    return b"D" + _F64.pack(value)


def list_head(count):
    return b"L" + _U32.pack(count)


def dict_head(count):
    return b"M" + _U32.pack(count)


def form_head(form):
    """The begin of an Arrow object in a request."""
    return b"A" + _U8.pack(form)


def encode_address(value):
    """An address or a handle, without a letter."""
    return _U64.pack(value)


def encode_signed(value):
    """An int64, without a letter."""
    return _I64.pack(value)


def encode(value):
    """A None, bool, int, float, str or bytes, by its own type, or a list or dict of them."""
    if value is None:
        return NONE
    if value is True:
        return b"T"
    if value is False:
        return b"F"
    if isinstance(value, str):
        return encode_str(value)
    if isinstance(value, int):
        return encode_int(value)
    if isinstance(value, float):
        return encode_float(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return encode_bytes(value)
    if isinstance(value, (list, tuple)):
        return list_head(len(value)) + b"".join(map(encode, value))
    if isinstance(value, dict):
        pairs = [encode_key(key) + encode(item) for key, item in value.items()]
        return dict_head(len(pairs)) + b"".join(pairs)
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        return encode(_item(value))  # a scalar of NumPy
    if hasattr(value, "__index__") and getattr(value, "shape", ()) == ():  # arrays of NumPy have one that raises
        return encode_int(value.__index__())
    raise Refusal(TypeError, f"unsupported type {type(value).__name__}")


def _item(value):
    item = value.item()
    if getattr(item, "shape", None) == ():
        raise Refusal(TypeError, f"unsupported type {type(value).__name__}")
    return item


def encode_key(key):
    """A key of a dict."""
    if not isinstance(key, str):
        raise Refusal(TypeError, f"keys of a dict must be str, not {type(key).__name__}")
    return encode_text(key)


class Failure(NamedTuple):
    """A reply that is an error."""

    kind: str
    text: str


class Reply:
    """Decodes a reply. wrap makes an object of a Reference."""

    def __init__(self, data, wrap):
        self._data, self._at, self._wrap = data, 1, wrap

    def decode(self):
        """The value of the reply, or a Failure."""
        if self._data[:1] == b"E":
            return Failure(self._text(), self._text())
        return self.value()

    def value(self):
        return self._DECODERS[self._take(1)](self)

    def _take(self, size):
        self._at += size
        return self._data[self._at - size : self._at]

    def _number(self, form):
        self._at += form.size
        return form.unpack_from(self._data, self._at - form.size)[0]

    def _text(self):
        return self._take(self._number(_U32)).decode(errors="surrogateescape")

    def _object(self):
        self._at += _OBJECT.size
        kind, *rest = _OBJECT.unpack_from(self._data, self._at - _OBJECT.size)
        return self._wrap(Reference(chr(kind), *rest))

    def _list(self):
        return [self.value() for _ in range(self._number(_U32))]

    def _dict(self):
        return {self._text(): self.value() for _ in range(self._number(_U32))}

    _DECODERS = {
        b"N": lambda self: None,
        b"T": lambda self: True,
        b"F": lambda self: False,
        b"I": lambda self: self._number(_I64),
        b"U": lambda self: self._number(_U64),
        b"D": lambda self: self._number(_F64),
        b"S": _text,
        b"B": lambda self: self._take(self._number(_U32)),
        b"L": _list,
        b"M": _dict,
        b"O": _object,
    }
