"""Arrays on the CPU, of the types that nanoarrow can copy."""

import nanoarrow as na
import numpy as np
from nanoarrow.c_schema import c_schema
from nanoarrow.device import c_device_array

import capsules


class Sample:
    def __init__(self, make, values, strings=False):
        self._make = make
        self.values = values
        self.strings = strings  # whether a consumer must read the device to know the sizes of buffers

    def make(self):
        """A device array on the CPU."""
        return c_device_array(self._make())


def _iterable(type, *values, strings=False):
    return Sample(lambda: na.c_array(list(values), type), list(values), strings)


def _strings(type, *values):
    return _iterable(type, *values, strings=True)


def _list(type, offset_type, child):
    offsets = na.c_buffer([0, 1, 1, 4], offset_type)
    return na.c_array_from_buffers(type, 3, [None, offsets], children=[child])


def _decimals(*values):
    return b"".join(value.to_bytes(16, "little") for value in values)


def _fixed_size_list():
    child = na.c_array([1, 2, None, 4], na.int16())
    return na.c_array_from_buffers(na.fixed_size_list(na.int16(), 2), 2, [None], children=[child])


def _struct():
    inner = na.struct({"c": na.float64()})
    c = na.c_array([0.5, 1.5, 2.5], na.float64())
    columns = [
        na.c_array([1, None, 3], na.int32()),
        na.c_array(["x", "yy", None], na.string()),
        na.c_array_from_buffers(inner, 3, [None], children=[c]),
    ]
    type = na.struct({"a": na.int32(), "b": na.string(), "in": inner})
    return na.c_array_from_buffers(type, 3, [bytes([0b101])], null_count=1, children=columns)


def _dictionary():
    indices = np.array([2, 0, 1, 2, 1], np.int8)
    offsets, data = np.array([0, 3, 3, 8], np.int32), np.frombuffer(b"redgreen", np.uint8)
    dictionary = capsules.Tree(3, None, offsets.ctypes.data, data.ctypes.data, keep=(offsets, data))
    tree = capsules.Tree(5, None, indices.ctypes.data, dictionary=dictionary, keep=indices)
    schema = c_schema(na.dictionary(na.int8(), na.string()))
    return capsules.Produced(schema, capsules.export(tree))


SAMPLES = {
    "null": Sample(lambda: na.c_array_from_buffers(na.null(), 3, [], null_count=3), [None] * 3),
    "bool": _iterable(na.bool_(), *[True, None, False] * 7),
    "int8": _iterable(na.int8(), 1, -2, None, 127),
    "uint16": _iterable(na.uint16(), 1, None, 65535),
    "int32": _iterable(na.int32(), *range(1000)),
    "int64": _iterable(na.int64(), None, -(2**63), 2**63 - 1),
    "uint64": _iterable(na.uint64(), 2**64 - 1, None),
    "float16": _iterable(na.float16(), 1.5, -2.0),
    "float64": _iterable(na.float64(), 0.1, None, float("inf")),
    "fixed_size_binary": _iterable(na.fixed_size_binary(3), b"abc", None, b"def"),
    "decimal128": Sample(lambda: na.c_array_from_buffers(na.decimal128(10, 0), 2, [None, _decimals(7, 9)]), [7, 9]),
    "empty": _iterable(na.int32()),
    "fixed_size_list": Sample(_fixed_size_list, [[1, 2], [None, 4]]),
    "list": Sample(
        lambda: _list(na.list_(na.int32()), na.int32(), na.c_array([1, 2, None, 4], na.int32())),
        [[1], [], [2, None, 4]],
    ),
    "string": _strings(na.string(), "a", None, "", "the rest of it", "ünï"),
    "binary": _strings(na.binary(), b"a", None, b"\0\1\2"),
    "large_string": _strings(na.large_string(), "x" * 100_000, None, "y"),
    "large_binary": _strings(na.large_binary(), b"", b"abc"),
    "empty_string": _strings(na.string()),
    "large_list_of_strings": Sample(
        lambda: _list(na.large_list(na.string()), na.int64(), na.c_array(["a", None, "ccc", ""], na.string())),
        [["a"], [], [None, "ccc", ""]],
        strings=True,
    ),
    "struct": Sample(
        _struct,
        [{"a": 1, "b": "x", "in": {"c": 0.5}}, None, {"a": 3, "b": None, "in": {"c": 2.5}}],
        strings=True,
    ),
    "dictionary": Sample(_dictionary, ["green", "red", "", "green", ""], strings=True),
}
